"""Positions of a split, in memory and bit-packed, and seeded batches of them that can be taken up anywhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from training.config import Data, Teaching
from training.replay import Positions, replay
from training.shards import SYSTEMS, Shard, ShardError, read_shard
from training.targets import Targets, TargetsError, digest_of, joined, read_targets

TO_MOVE_RESULT = np.array([[0, 1, 2, -1], [2, 1, 0, -1]], dtype=np.int8)  # by (Black to move, White's result)


@dataclass(frozen=True)
class Dataset:
    """`N` positions; about 140 bytes each, and 45 for a teacher's targets."""

    positions: Positions
    elo_self: NDArray[np.int16]  # brought to lichess's scale
    elo_opponent: NDArray[np.int16]
    result: NDArray[np.int8]  # 0 win, 1 draw, 2 loss for the side to move, -1 unknown
    many_players: NDArray[np.bool_]
    skipped: Counter[str]  # files that could not be read, by reason
    targets: Targets | None = None  # of these positions, in their order

    def __len__(self) -> int:
        return len(self.positions.slot)


def load(data: Data, split: str, seed: int, teaching: Teaching | None = None) -> Dataset:
    """All positions of a split that the run trains on; files that cannot be read are skipped and counted.

    With `teaching` those that a teacher was asked about, as far as its targets are there.
    """
    files = sorted(data.folder.glob(f"{split}-*.shard"))
    if not files:
        raise SystemExit(f"{data.folder}: no shards of the split {split!r}; python -m training.data makes them")
    parts: list[Dataset] = []
    skipped: Counter[str] = Counter()
    for file in tqdm(files, unit=" shards", desc=split, leave=False):
        try:
            if teaching is None:
                parts.append(_expanded(file, data, seed))
            else:
                parts += _taught(file, data, teaching, skipped)
        except ShardError as error:
            skipped[str(error)] += 1
    if not parts and teaching is not None:
        raise SystemExit(f"{teaching.folder}: no targets of these shards; python -m training.teacher makes them")
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


def trained_on(found: Positions, data: Data, draw: np.random.Generator) -> NDArray[np.bool_]:
    """Which positions of a shard a run trains on: of the opening only some, for they repeat from game to game."""
    return np.asarray((found.ply >= data.opening_plies) | (draw.random(len(found.slot)) < data.opening_share))


def ratings_of(
    positions: Positions, games: NDArray[np.void], data: Data
) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Those of the side to move and of the other, brought to lichess's scale, `[N]`; `games` are the shard's."""
    of_each = games[positions.game]
    shift = np.array([data.to_lichess[system] for system in SYSTEMS], dtype=np.int16)[of_each["system"]]  # type: ignore[index]
    white, black = of_each["white_elo"] + shift, of_each["black_elo"] + shift
    mover = np.where(positions.black, black, white).astype(np.int16)
    return mover, np.where(positions.black, white, black).astype(np.int16)


def _expanded(file: Path, data: Data, seed: int) -> Dataset:
    shard = read_shard(file)
    found = replay(shard)
    number = int(file.stem.rpartition("-")[2])
    kept = np.flatnonzero(trained_on(found, data, np.random.default_rng((seed, number))))
    return _rows(shard, found, kept, data, None)


def _taught(file: Path, data: Data, teaching: Teaching, skipped: Counter[str]) -> list[Dataset]:
    """The positions of a shard that there are targets for, one part for each of their files."""
    found = sorted(teaching.folder.glob(f"{file.stem}.*.targets"))
    if not found:
        return []
    shard, digest, parts = read_shard(file), digest_of(file), []
    positions = replay(shard)
    for name in found:
        try:
            targets = read_targets(name)
        except TargetsError as error:
            skipped[str(error)] += 1
            continue
        if targets.about["shard"] != digest:
            raise SystemExit(f"{name}: made from another {file.name}: make the targets again")
        parts.append(_rows(shard, positions, targets.rows.astype(np.int64), data, targets))
    return parts


def _rows(shard: Shard, found: Positions, rows: NDArray[np.int64], data: Data, targets: Targets | None) -> Dataset:
    positions = Positions(*(getattr(found, field)[rows] for field in ("bitboards", "halfmove", "ply", "slot", "game")))
    games = shard.games[positions.game]
    return Dataset(
        positions,
        *ratings_of(positions, shard.games, data),
        TO_MOVE_RESULT[positions.black.astype(np.intp), games["result"]],
        games["many_players"],
        Counter(),
        targets,
    )


def _joined(parts: list[Dataset], skipped: Counter[str]) -> Dataset:
    fields = ("bitboards", "halfmove", "ply", "slot", "game")
    positions = Positions(*(np.concatenate([getattr(part.positions, name) for part in parts]) for name in fields))
    targets = [part.targets for part in parts if part.targets is not None]
    return Dataset(
        positions,
        np.concatenate([part.elo_self for part in parts]),
        np.concatenate([part.elo_opponent for part in parts]),
        np.concatenate([part.result for part in parts]),
        np.concatenate([part.many_players for part in parts]),
        skipped,
        joined(targets) if targets else None,
    )
