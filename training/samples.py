"""Held-out positions to measure a model on, with all that a human knew: the game so far and both ratings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import chess
import numpy as np
from tqdm import tqdm

from movemask.board.position import Elo, Position
from movemask.encoding.vocabularies import vocabulary
from training.config import Data
from training.dataset import TO_MOVE_RESULT
from training.shards import EN_PASSANT, SYSTEMS, VOCABULARY, Shard, read_shard

HISTORY = 8  # moves kept before a position: what the networks with history look at


@dataclass(frozen=True)
class Sample:
    """A position, what was played there, and how the game ended for the side to move (0 win, 1 draw, 2 loss, -1)."""

    position: Position
    played: chess.Move
    elo: Elo
    ply: int
    result: int


def samples(data: Data, split: str, per_game: int, seed: int) -> list[Sample]:
    """Up to `per_game` positions after the opening of every game by many players of a split."""
    draw = np.random.default_rng(seed)
    result: list[Sample] = []
    for shard, game, plies in held_out_games(data, split):
        after_opening = np.arange(data.opening_plies, len(plies))
        chosen = set(draw.permutation(after_opening)[:per_game].tolist())
        result += [sample for sample in _played(data, shard, game, plies) if sample.ply in chosen]
    return result


def held_out_games(data: Data, split: str) -> Iterator[tuple[Shard, int, list[int]]]:
    """The games by many players of a split: the shard, the row in it and the packed plies."""
    files = sorted(data.folder.glob(f"{split}-*.shard"))
    if not files:
        raise SystemExit(f"{data.folder}: no shards of the split {split!r}; python -m training.data makes them")
    for file in tqdm(files, desc=split, unit=" shards"):
        shard = read_shard(file)
        ends = np.cumsum(shard.games["plies"].astype(np.int64))
        for game in np.flatnonzero(shard.games["many_players"]):
            yield shard, int(game), shard.plies[ends[game] - shard.games["plies"][game] : ends[game]].tolist()


def _played(data: Data, shard: Shard, game: int, plies: list[int]) -> Iterator[Sample]:
    row = shard.games[game]
    shift = data.to_lichess[SYSTEMS[row["system"]]]  # type: ignore[index]
    white, black = float(row["white_elo"]) + shift, float(row["black_elo"]) + shift
    board = chess.Board()
    for ply, packed in enumerate(plies):
        move = vocabulary(VOCABULARY).move(packed & (EN_PASSANT - 1), board)
        elo = Elo(white, black) if board.turn == chess.WHITE else Elo(black, white)
        result = int(TO_MOVE_RESULT[int(not board.turn), row["result"]])
        yield Sample(Position(board.copy(stack=HISTORY)), move, elo, ply, result)
        board.push(move)
