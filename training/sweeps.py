"""Policies along the ratings: whether they are smooth, and whether two networks' are the same.

`python -m training.sweeps RUN.toml models/NAME models/NAME-int8` says how far integers are from the floats where people
look: in the commonest positions and as many from the middle of games, at every rating.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.position import Elo, Position
from movemask.encoding.vocabularies import vocabulary
from movemask.network.model import Model
from movemask.pipeline import evaluate_positions
from training.config import Data, load_run
from training.measure import loaded
from training.samples import held_out_games, samples
from training.shards import EN_PASSANT, VOCABULARY

RATINGS = range(800, 2501, 100)
SWEPT = 100  # of the commonest positions, and as many from the middle of games
LARGEST, MEAN = 0.03, 0.003  # differences of a move's probability that do not show
PLIES = 12  # of a game, in which the commonest positions are looked for

Curves = list[NDArray[np.float64]]  # of each position, [ratings, moves]


def commonest(data: Data, count: int) -> list[Position]:
    """The commonest positions of the validation split, commonest first, each with the moves that led there."""
    lines: Counter[tuple[int, ...]] = Counter()
    for _, _, plies in held_out_games(data, "validation"):
        lines.update(tuple(plies[:length]) for length in range(min(PLIES, len(plies) - 1) + 1))
    return [_position(line) for line, _ in lines.most_common(count)]


def curves(model: Model, positions: Sequence[Position]) -> Curves:
    """The policy of each position by rating, both players' the same."""
    elos = [Elo(rating, rating) for rating in RATINGS]
    found = []
    for position in positions:
        logits = evaluate_positions(model, [position] * len(elos), elos).unmasked.legal.reshape(len(elos), -1)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        found.append(shares / shares.sum(axis=1, keepdims=True))
    return found


def largest_step(found: Curves) -> float:
    """The most that a move's probability changes between neighbouring ratings."""
    return max(float(np.abs(np.diff(one, axis=0)).max()) for one in found)


def apart(one: Curves, other: Curves) -> tuple[float, float]:
    """The largest and the mean difference of a move's probability."""
    differences = np.concatenate([np.abs(a - b).ravel() for a, b in zip(one, other, strict=True)])
    return float(differences.max()), float(differences.mean())


def _position(line: Sequence[int]) -> Position:
    board = chess.Board()
    for ply in line:
        board.push(vocabulary(VOCABULARY).move(ply & (EN_PASSANT - 1), board))
    return Position(board)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="how far two networks are apart along the ratings")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-4.toml, for its shards")
    parser.add_argument("models", type=Path, nargs=2, help="such as models/movemask-4 models/movemask-4-int8")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    later = samples(run.data, "validation", 1, run.seed)[:SWEPT]
    swept = [*commonest(run.data, SWEPT), *(sample.position for sample in later)]
    largest, mean = apart(*(curves(loaded(model), swept) for model in arguments.models))
    within = largest <= LARGEST and mean <= MEAN
    print(
        f"{len(swept)} positions at {len(RATINGS)} ratings: a move's probability differs by {largest:.3f} at most "
        f"(limit {LARGEST}) and {mean:.4f} on average ({MEAN}): {'within' if within else 'beyond'} the limits"
    )


if __name__ == "__main__":
    main()
