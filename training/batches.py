"""Batches of positions with what the teacher holds of them, made ready while the network works on the one before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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


def gathered(
    dataset: Dataset,
    rows: NDArray[np.int64],
    bare: NDArray[np.bool_],
    device: str = "cpu",
    teacher: Teacher | None = None,
    ready: NDArray[np.float32] | None = None,
) -> Batch:
    """The batch of those rows, of `bare` ones the position alone; `ready` logits `[B, A]` replace the teacher's."""
    legal = legal_mask(dataset.bitboards[rows])
    tokens, elo_self, elo_opponent, mask, slot, result = (
        torch.from_numpy(array).to(device, non_blocking=True)
        for array in (
            dataset.tokens(rows, bare),
            dataset.elo_self[rows],
            dataset.elo_opponent[rows],
            legal,
            dataset.slot[rows].astype(np.int64),
            dataset.result[rows].astype(np.int64),
        )
    )
    inputs = tokens.float(), elo_self.float(), elo_opponent.float()
    if ready is not None:
        return Batch(*inputs, mask, slot, result, Lesson(torch.from_numpy(ready).to(device, non_blocking=True)))
    return Batch(*inputs, mask, slot, result, teacher.lesson(*inputs, mask) if teacher else None)


def stream(
    dataset: Dataset,
    order: NDArray[np.int64],
    first: int,
    size: int,
    bare: float,
    device: str,
    teacher: Teacher,
    ready: Ready | None = None,
) -> Iterator[Batch]:
    """Batches from number `first` on, without end; a share `bare` of each is without the game before the position."""
    per_epoch = len(order) // size
    if not per_epoch:
        raise SystemExit(f"{len(order)} positions are fewer than a batch of {size}")

    def made(number: int) -> Batch:
        alone = np.arange(size) < bare * size
        if ready is not None and (places := ready.places(number, size)) is not None:
            rows = ready.targets.rows[places]
            logits = ready.targets.logits(places, legal_mask(dataset.bitboards[rows]))
            return gathered(dataset, rows, alone, device, ready=logits)
        rows = order[number % per_epoch * size :][:size]
        return gathered(dataset, rows, alone, device, teacher)

    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as thread:
        ahead = [thread.submit(made, number) for number in range(first, first + AHEAD)]
        while True:
            batch = ahead.pop(0).result()
            first += 1
            ahead.append(thread.submit(made, first + AHEAD - 1))
            yield batch
