"""Games → packed positions: `python -m training.data RUN_FOLDER`.

Each position is kept as fifteen bitboards (`service.encoding.movemask_planes.bitboards`) and a few small numbers, and
expanded to planes where it is used, by the same code as the service. Games are split by a hash of their moves, so the
split never moves.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import chess
import numpy as np
import zstandard
from numpy.typing import NDArray
from tqdm import tqdm

from service.encoding import movemask_planes
from service.encoding.vocabularies import vocabulary
from training.config import MANY_PLAYERS, Run

VOCABULARY = "movemask-1880"
SPLITS = ("train", "validation", "test")
POSITION = np.dtype(
    [
        ("bitboards", np.uint64, movemask_planes.BITBOARDS),
        ("halfmove", np.uint8),
        ("black", np.bool_),
        ("ply", np.uint16),
        ("elo_self", np.int16),
        ("elo_opponent", np.int16),
        ("slot", np.int16),
        ("result", np.int8),  # 0 win, 1 draw, 2 loss for the side to move, -1 unknown
        ("many_players", np.bool_),
    ]
)


@dataclass(frozen=True)
class Game:
    white_elo: int
    black_elo: int
    result: str
    source: str
    moves: str


def split_of(moves: str) -> str:
    """Two in a hundred games for validation, two for the test, by a hash of the moves."""
    bucket = int.from_bytes(hashlib.sha256(moves.encode()).digest()[:4], "big") % 100
    return "test" if bucket < 2 else "validation" if bucket < 4 else "train"


def games(run: Run, skipped: Counter[str]) -> Iterator[Game]:
    """The games of `run`, in the file's order; what is left out is counted by reason in `skipped`."""
    with open(run.games, "rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for row in csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8")):
            if not row["source"].startswith(run.source_prefix):
                skipped["source of another licence"] += 1
            elif row["source"] in run.left_out_sources:
                skipped["source left out"] += 1
            elif not (row["white_elo"].isdigit() and row["black_elo"].isdigit()):
                skipped["no ratings"] += 1
            elif _seconds(row["time_control"]) < run.shortest_seconds:
                skipped["too fast"] += 1
            else:
                yield Game(int(row["white_elo"]), int(row["black_elo"]), row["result"], row["source"], row["moves"])


def positions(run: Run, game: Game, draw: random.Random, skipped: Counter[str]) -> list[tuple[object, ...]]:
    """Up to `run.plies_per_game` positions of a game, drawn without replacement."""
    moves = game.moves.split()
    chosen = set(draw.sample(range(len(moves)), min(len(moves), run.plies_per_game)))
    board = chess.Board()
    rows: list[tuple[object, ...]] = []
    for ply, uci in enumerate(moves):
        try:
            move = board.parse_uci(uci)
        except ValueError:
            skipped["games cut off at an illegal move"] += 1
            return rows
        if ply in chosen:
            white = board.turn == chess.WHITE
            elos = (game.white_elo, game.black_elo) if white else (game.black_elo, game.white_elo)
            rows.append(
                (
                    movemask_planes.bitboards(board),
                    min(board.halfmove_clock, 255),
                    not white,
                    ply,
                    *elos,
                    vocabulary(VOCABULARY).slot(move, board),
                    _result(game.result, white),
                    game.source in MANY_PLAYERS,
                )
            )
        board.push(move)
    return rows


def write_shards(run: Run, limit: int | None = None) -> None:
    """Writes `train.npy`, `validation.npy`, `test.npy` into the run's folder, each in a random order."""
    skipped: Counter[str] = Counter()
    draw = random.Random(run.seed)
    rows: dict[str, list[NDArray[np.void]]] = {split: [] for split in SPLITS}
    for number, game in enumerate(tqdm(games(run, skipped), unit=" games")):
        if limit is not None and number >= limit:
            break
        drawn = positions(run, game, draw, skipped)
        if drawn:
            rows[split_of(game.moves)].append(np.array(drawn, dtype=POSITION))
    run.folder.mkdir(parents=True, exist_ok=True)
    shuffle = np.random.default_rng(run.seed)
    for split, parts in rows.items():
        packed = np.concatenate(parts) if parts else np.empty(0, dtype=POSITION)
        shuffle.shuffle(packed)
        np.save(run.folder / f"{split}.npy", packed)
        print(f"{split}: {len(parts)} games, {len(packed)} positions")
    print("left out:", dict(skipped))


def planes_of(packed: NDArray[np.void]) -> NDArray[np.float32]:
    """Packed positions `[B]` → float32 planes `[B, 18, 8, 8]`."""
    return movemask_planes.expand(packed["bitboards"], packed["halfmove"], packed["black"])


def _seconds(time_control: str) -> int:
    words = {"bullet": 60, "blitz": 300, "rapid": 600, "classical": 1800}
    if time_control in words:
        return words[time_control]
    base, _, increment = time_control.partition("+")
    if not base.isdigit():
        return 600  # unknown or untimed: not bullet
    return int(base) + 40 * int(increment or 0)


def _result(result: str, white: bool) -> int:
    outcome = {"1-0": 0, "1/2-1/2": 1, "0-1": 2}.get(result, -1)
    return 2 - outcome if outcome >= 0 and not white else outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="games -> packed positions")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, help="read only this many games")
    arguments = parser.parse_args()
    write_shards(Run(arguments.folder), arguments.limit)
