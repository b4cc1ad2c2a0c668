"""Batches of positions with what the teacher holds of them, made ready while the network works on the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Numbered

from training.dataset import Dataset
from training.legal import legal_mask
from training.maia3 import Lesson, Teacher
from training.targets import Targets

AHEAD = 3  # batches made ready before they are asked for


@dataclass(frozen=True)
class Batch:
    """`B` positions; a `lesson` where there is a teacher."""

    tokens: Tensor  # float32 [B, 64, 99]
    elo_self: Tensor  # float32 [B]
    elo_opponent: Tensor  # float32 [B]
    legal: Tensor  # bool [B, A]
    slot: Tensor  # int64 [B], of the move that was played
    result: Tensor  # int64 [B]
    lesson: Lesson | None = None

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the network takes."""
        return self.tokens, self.elo_self, self.elo_opponent

    def part(self, rows: slice) -> Batch:
        """Those positions, without a lesson."""
        return Batch(*(array[rows] for array in (*self.inputs(), self.legal, self.slot, self.result)))


@dataclass(frozen=True)
class Ready:
    """A share of a run's batches that ready policies teach, spread evenly; `order` is that of the targets."""

    targets: Targets
    order: NDArray[np.int64]
    share: float
    first: int  # number of the run's first batch that may be one of them

    def places(self, number: int, size: int) -> NDArray[np.int64] | None:
        """Places of the targets for batch `number` of the run, or None if the teacher itself teaches it."""
        before, after = int(max(number - self.first, 0) * self.share), int(max(number + 1 - self.first, 0) * self.share)
        if before == after:
            return None
        return self.order[np.arange(before * size, after * size) % len(self.order)]


def best_device() -> str:
    """Where batches and networks are: the GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def gathered(
    dataset: Dataset,
    rows: NDArray[np.int64],
    bare: NDArray[np.bool_],
    device: str = "cpu",
    teacher: Teacher | None = None,
) -> Batch:
    """The batch of those rows, of `bare` ones the position alone."""
    return _taught([torch.from_numpy(array) for array in _arrays(dataset, rows, bare)], None, device, teacher)


def stream(
    dataset: Dataset,
    order: NDArray[np.int64],
    first: int,
    size: int,
    bare: float,
    device: str,
    teacher: Teacher,
    ready: Ready | None = None,
    gatherers: int = 0,
) -> Iterator[Batch]:
    """Batches from number `first` on, without end; a share `bare` of each is without the game before the position.

    `gatherers` processes find the positions and their legal moves, or with 0 the thread on which the teacher runs.
    """
    if len(order) < size:
        raise SystemExit(f"{len(order)} positions are fewer than a batch of {size}")
    loader = DataLoader(
        _Batches(dataset, order, size, bare, ready),
        batch_size=None,
        sampler=count(first),  # type: ignore[arg-type]  # it has no length, and none is asked for
        num_workers=gatherers,
        multiprocessing_context="fork" if gatherers else None,  # the positions are shared, not copied
        pin_memory=device != "cpu",
    )
    numbered = iter(loader)

    def made() -> Batch:
        return _taught(*next(numbered), device, teacher)

    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as thread:
        ahead = [thread.submit(made) for _ in range(AHEAD)]
        while True:
            batch = ahead.pop(0).result()
            ahead.append(thread.submit(made))
            yield batch


@dataclass(frozen=True)
class _Batches(Numbered[tuple[Sequence[Any], Any]]):
    """Batches of a run by their numbers, before the teacher has seen them."""

    dataset: Dataset
    order: NDArray[np.int64]
    size: int
    bare: float
    ready: Ready | None

    def __getitem__(self, number: int) -> tuple[Sequence[Any], Any]:
        """What `_arrays` finds, and the logits of a ready policy if one teaches the batch, else None."""
        alone = np.arange(self.size) < self.bare * self.size
        if self.ready is not None and (places := self.ready.places(number, self.size)) is not None:
            rows = self.ready.targets.rows[places]
            arrays = _arrays(self.dataset, rows, alone)
            return arrays, self.ready.targets.logits(places, arrays[3])
        rows = self.order[number % (len(self.order) // self.size) * self.size :][: self.size]
        return _arrays(self.dataset, rows, alone), None


def _arrays(dataset: Dataset, rows: NDArray[np.int64], bare: NDArray[np.bool_]) -> list[NDArray[Any]]:
    """The fields of a Batch, in its order; the tokens are still bytes."""
    return [
        dataset.tokens(rows, bare),
        dataset.elo_self[rows],
        dataset.elo_opponent[rows],
        legal_mask(dataset.bitboards[rows]),
        dataset.slot[rows].astype(np.int64),
        dataset.result[rows].astype(np.int64),
    ]


def _taught(arrays: Sequence[Tensor], ready: Tensor | None, device: str, teacher: Teacher | None) -> Batch:
    tokens, elo_self, elo_opponent, legal, slot, result = (array.to(device, non_blocking=True) for array in arrays)
    inputs = tokens.float(), elo_self.float(), elo_opponent.float()
    if ready is not None:
        return Batch(*inputs, legal, slot, result, Lesson(ready.to(device, non_blocking=True)))
    return Batch(*inputs, legal, slot, result, teacher.lesson(*inputs, legal) if teacher else None)
