"""Positions of a split, in memory and bit-packed, and seeded batches of them that can be taken up anywhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from training.config import Data
from training.replay import Positions, replay
from training.shards import SYSTEMS, ShardError, read_shard

TO_MOVE_RESULT = np.array([[0, 1, 2, -1], [2, 1, 0, -1]], dtype=np.int8)  # by (Black to move, White's result)


@dataclass(frozen=True)
class Dataset:
    """`N` positions; about 140 bytes each."""

    positions: Positions
    elo_self: NDArray[np.int16]  # brought to lichess's scale
    elo_opponent: NDArray[np.int16]
    result: NDArray[np.int8]  # 0 win, 1 draw, 2 loss for the side to move, -1 unknown
    many_players: NDArray[np.bool_]
    skipped: Counter[str]  # shards that could not be read, by reason

    def __len__(self) -> int:
        return len(self.positions.slot)


def load(data: Data, split: str, seed: int) -> Dataset:
    """All positions of a split that the run trains on; shards that cannot be read are skipped and counted."""
    files = sorted(data.folder.glob(f"{split}-*.shard"))
    if not files:
        raise SystemExit(f"{data.folder}: no shards of the split {split!r}; python -m training.data makes them")
    parts: list[Dataset] = []
    skipped: Counter[str] = Counter()
    for file in tqdm(files, unit=" shards", desc=split, leave=False):
        try:
            parts.append(_expanded(file, data, seed))
        except ShardError as error:
            skipped[str(error)] += 1
    if not parts:
        raise SystemExit(f"{data.folder}: none of the {len(files)} shards of {split!r} can be read")
    return _joined(parts, skipped)


class Order:
    """Which positions each step sees: every epoch is a new order of all `size`, decided by the seed alone."""

    def __init__(self, size: int, batch: int, seed: int) -> None:
        if size < batch:
            raise SystemExit(f"{size} positions are fewer than a batch of {batch}")
        self._size, self._batch, self._seed = size, batch, seed
        self._epoch, self._shuffled = -1, np.empty(0, dtype=np.int64)

    def indices(self, step: int) -> NDArray[np.int64]:
        """int64 `[batch]` of batch `step`; fast as long as steps do not go back and forth between epochs."""
        epoch, within = divmod(step, self._size // self._batch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._shuffled = np.random.default_rng((self._seed, epoch)).permutation(self._size)
        return self._shuffled[within * self._batch : (within + 1) * self._batch]


def _expanded(file: Path, data: Data, seed: int) -> Dataset:
    shard = read_shard(file)
    found = replay(shard)
    number = int(file.stem.rpartition("-")[2])
    drawn = np.random.default_rng((seed, number)).random(len(found.slot)) < data.opening_share
    kept = (found.ply >= data.opening_plies) | drawn
    positions = Positions(*(getattr(found, field)[kept] for field in ("bitboards", "halfmove", "ply", "slot", "game")))
    games = shard.games[positions.game]
    shift = np.array([data.to_lichess[system] for system in SYSTEMS], dtype=np.int16)[games["system"]]  # type: ignore[index]
    white, black = games["white_elo"] + shift, games["black_elo"] + shift
    return Dataset(
        positions,
        np.where(positions.black, black, white).astype(np.int16),
        np.where(positions.black, white, black).astype(np.int16),
        TO_MOVE_RESULT[positions.black.astype(np.intp), games["result"]],
        games["many_players"],
        Counter(),
    )


def _joined(parts: list[Dataset], skipped: Counter[str]) -> Dataset:
    def every(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(part, name) for part in parts])

    fields = ("bitboards", "halfmove", "ply", "slot", "game")
    positions = Positions(*(np.concatenate([getattr(part.positions, name) for part in parts]) for name in fields))
    names = ("elo_self", "elo_opponent", "result", "many_players")
    return Dataset(positions, *(every(name) for name in names), skipped)  # type: ignore[arg-type]
