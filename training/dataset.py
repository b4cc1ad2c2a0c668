"""Positions of a split, in memory and bit-packed, game by game, and a seeded order that can be taken up anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.board.boards import unpacked
from training.config import Data
from training.replay import PIECES, replay
from training.shards import SYSTEMS, ShardError, read_shard

TO_MOVE_RESULT = np.array([[0, 1, 2, -1], [2, 1, 0, -1]], dtype=np.int8)  # by (Black to move, White's result)
HISTORY = 8  # positions that the network sees
RATING_BAND = 100  # ratings in a band, from LOWEST to HIGHEST, for drawing positions
LOWEST, HIGHEST = 600, 2600
PHASES = (9, 15, 21, 27)  # pieces on the board, above which another phase begins


@dataclass(frozen=True)
class Dataset:
    """`N` positions in the order they were played, one game after another; about 135 bytes each."""

    bitboards: NDArray[np.uint64]  # [N, 15], seen by the side to move: `training.replay`
    ply: NDArray[np.uint16]  # Black is to move where it is odd
    slot: NDArray[np.int16]  # of the move that was played
    elo_self: NDArray[np.int16]  # brought to lichess's scale
    elo_opponent: NDArray[np.int16]
    result: NDArray[np.int8]  # 0 win, 1 draw, 2 loss for the side to move, -1 unknown
    many_players: NDArray[np.bool_]
    skipped: Counter[str]  # files that could not be read, by reason
    places: Mapping[str, NDArray[np.int64]]  # by a shard's file name: the position of each row of its replay

    def __len__(self) -> int:
        return len(self.slot)

    def tokens(self, rows: NDArray[np.int64], bare: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """uint8 `[B, 64, 99]`, what the network takes; of `bare` rows the game before the position is left out."""
        back = np.minimum(np.arange(HISTORY)[::-1], self.ply[rows].astype(np.int64)[:, None])
        earlier = rows[:, None] - np.where(bare[:, None], 0, back)  # [B, 8], oldest first
        of_pieces = self.bitboards[earlier, :PIECES].reshape(len(rows), HISTORY * PIECES)
        bits = np.concatenate([of_pieces, self.bitboards[rows, PIECES:]], axis=1)
        return unpacked(bits).reshape(*bits.shape, 64).transpose(0, 2, 1)


def load(data: Data, split: str) -> Dataset:
    """All positions of a split in which a move was played; files that cannot be read are skipped and counted."""
    files = sorted(data.folder.glob(f"{split}-*.shard"))
    if not files:
        raise SystemExit(f"{data.folder}: no shards of the split {split!r}; python -m training.data makes them")
    parts: list[tuple[NDArray[np.generic], ...]] = []
    places: dict[str, NDArray[np.int64]] = {}
    skipped: Counter[str] = Counter()
    count = 0
    for file in tqdm(files, unit=" shards", desc=split, leave=False):
        try:
            arrays, by_game = _arrays(file, data)
        except ShardError as error:
            skipped[str(error)] += 1
            continue
        places[file.name] = count + np.argsort(by_game)
        parts.append(arrays)
        count += len(by_game)
    if not parts:
        raise SystemExit(f"{data.folder}: none of the {len(files)} shards of {split!r} can be read")
    columns = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Dataset(*columns, skipped, places)  # type: ignore[arg-type]


def _arrays(file: Path, data: Data) -> tuple[tuple[NDArray[np.generic], ...], NDArray[np.int64]]:
    """The columns of a shard's positions, and the order that they are in: rows of the shard's replay."""
    shard = read_shard(file)
    positions = replay(shard)
    by_game = np.lexsort((positions.ply, positions.game))
    games, black = shard.games[positions.game[by_game]], positions.black[by_game]
    shift = np.array([data.to_lichess[system] for system in SYSTEMS], dtype=np.int16)[games["system"]]  # type: ignore[index]
    white, other = games["white_elo"] + shift, games["black_elo"] + shift
    columns = (
        positions.bitboards[by_game],
        positions.ply[by_game],
        positions.slot[by_game],
        np.where(black, other, white).astype(np.int16),
        np.where(black, white, other).astype(np.int16),
        TO_MOVE_RESULT[black.astype(np.intp), games["result"]],
        games["many_players"],
    )
    return columns, by_game


def order(dataset: Dataset, data: Data, seed: int) -> NDArray[np.int64]:
    """All rows, `[N]`, in the order in which a run sees them: rare ratings and phases of the game come early and often,
    openings seldom, and no row twice (weighted sampling without replacement: Efraimidis and Spirakis 2006).

    A position's weight is one over the square root of how many share its band of ratings and its phase, which is half
    way between games as they are and all bands alike.
    """
    band = (np.clip(dataset.elo_self, LOWEST, HIGHEST) - LOWEST) // RATING_BAND
    pieces = np.bitwise_count(np.bitwise_or.reduce(dataset.bitboards[:, :PIECES], axis=1))
    group = band.astype(np.int64) * (len(PHASES) + 1) + np.digitize(pieces, PHASES)
    weight = np.bincount(group)[group] ** -0.5
    weight[dataset.ply < data.opening_plies] *= data.opening_share
    key = np.random.default_rng(seed).standard_exponential(len(dataset)) / weight
    return np.argsort(key, kind="stable")
