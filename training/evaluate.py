"""Held-out figures of any model, through the service's own path: `python -m training.evaluate MODELS_FOLDER NAME`.

Positions after the fourth move of held-out games of sources with many players (the test split, which training
has not seen), a few from each game. With `--write` the figures become the card's `[card.measured]`.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter
from pathlib import Path

import chess
import numpy as np
import tomlkit
from tqdm import tqdm

from service.audit import leakage
from service.encoding.encoded import Elo
from service.encoding.position import Position
from service.inference.model import Model
from service.inference.registry import load_registry
from service.policy import Rule, legal_of, policies
from training.config import MANY_PLAYERS, Run
from training.data import games, split_of

BANDS = (1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400)
FIRST_PLY = 8  # after the fourth move of both sides
PER_GAME = 4
BATCH = 256

Sample = tuple[Position, chess.Move, Elo]


def samples(run: Run) -> list[Sample]:
    """Held-out positions, the move that was played and the ratings."""
    draw = random.Random(run.seed)
    found: list[Sample] = []
    for game in tqdm(games(run, Counter()), unit=" games"):
        if game.source not in MANY_PLAYERS or split_of(game.moves) != "test":
            continue
        moves = game.moves.split()
        chosen = set(draw.sample(range(FIRST_PLY, len(moves)), min(PER_GAME, max(0, len(moves) - FIRST_PLY))))
        board = chess.Board()
        for ply, uci in enumerate(moves):
            if ply in chosen:
                white = board.turn == chess.WHITE
                elo = (game.white_elo, game.black_elo) if white else (game.black_elo, game.white_elo)
                found.append((Position(board.copy()), board.parse_uci(uci), Elo(*elo)))
            board.push_uci(uci)
    return found


def measure(model: Model, found: list[Sample], *, history: bool) -> dict[str, object]:
    """Top-1, top-3 and cross-entropy of the masked policy, all and by rating band; and leakage."""
    ranks, surprises, elos, raws, multiplieds = [], [], [], [], []
    for start in tqdm(range(0, len(found), BATCH), unit=" batches"):
        part = found[start : start + BATCH]
        batch = [
            model.encode(position if history else Position(position.board.copy(stack=False)), elo)
            for position, _, elo in part
        ]
        logits = model.evaluate(batch).logits
        legal = legal_of(batch, logits)
        raws.append(leakage.raw(logits, legal.slots, legal.indptr))
        multiplieds.append(leakage.multiplied(logits, legal.slots, legal.indptr))
        for policy, (_, played, elo) in zip(policies(batch, legal, [Rule()] * len(batch)), part, strict=True):
            rank = policy.moves.index(played)
            ranks.append(rank)
            surprises.append(-np.log(max(policy.probabilities[rank], 1e-300)))
            elos.append(elo.self)
    rank, surprise, rating = np.array(ranks), np.array(surprises), np.array(elos)
    figures: dict[str, object] = {
        "positions": len(found),
        "top1": _rounded((rank == 0).mean()),
        "top3": _rounded((rank < 3).mean()),
        "cross_entropy": _rounded(surprise.mean()),
    }
    for low, high in itertools.pairwise(BANDS):
        band = (rating >= low) & (rating < high)
        if band.any():
            figures[f"top1_{low}_{high}"] = _rounded((rank[band] == 0).mean())
            figures[f"positions_{low}_{high}"] = int(band.sum())
    for name, values in (("raw", np.concatenate(raws)), ("multiplied", np.concatenate(multiplieds))):
        figures[f"{name}_leakage_mean"] = float(f"{values.mean():.3g}")
        figures[f"{name}_leakage_p99"] = float(f"{np.quantile(values, 0.99):.3g}")
        figures[f"{name}_leakage_max"] = float(f"{values.max():.3g}")
    return figures


def write(card: Path, figures: dict[str, object], command: str) -> None:
    """Puts the figures into a card, in the place of older ones, and leaves the rest of the file as it is."""
    table = tomlkit.parse(card.read_text())
    what = "held-out rapid and blitz games of many players, positions after the fourth move, FEN alone"
    table["card"]["measured"] = {"command": command, "what": what, **figures}
    card.write_text(tomlkit.dumps(table))


def _rounded(value: float) -> float:
    return round(float(value), 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="held-out figures of a model")
    parser.add_argument("models", type=Path)
    parser.add_argument("name")
    parser.add_argument("--history", action="store_true", help="hand the model the game's last positions too")
    parser.add_argument("--write", action="store_true", help="put the figures into the model's card")
    arguments = parser.parse_args()
    model = load_registry(arguments.models, arguments.name, threads=2).get(arguments.name)
    figures = measure(model, samples(Run(Path())), history=arguments.history)
    for name, value in figures.items():
        print(f"{name:<24} {value}")
    if arguments.write:
        asked = f"python -m training.evaluate {arguments.models} {arguments.name} --write"
        write(arguments.models / f"{arguments.name}.toml", figures, asked)
