"""Batches of tensors from a dataset, made ready while the network works on the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from movemask.encoding.movemask_planes import HALFMOVE, LAST_MOVES, PLANES
from movemask.processes import end_with_parent
from training.dataset import Dataset, Order
from training.legal import legal_mask

AHEAD = 3  # batches made ready before they are asked for


@dataclass(frozen=True)
class Batch:
    """`B` positions, bit-packed; `legal` only where it was asked for, a teacher's targets where there are any."""

    bitboards: Tensor  # int64 [B, 21], the bits of uint64
    halfmove: Tensor  # uint8 [B]
    black: Tensor  # bool [B]
    elo_self: Tensor  # float32 [B]
    elo_opponent: Tensor  # float32 [B]
    slot: Tensor  # int64 [B]
    result: Tensor  # int64 [B]
    legal: Tensor | None  # bool [B, A], or of the first positions only
    taught_slots: Tensor | None = None  # int64 [B, K]
    taught: Tensor | None = None  # float32 [B, K], what the teacher gives to them: a sum of 1

    def to(self, device: str) -> Batch:
        """The same on another device."""
        return self._each(lambda value: value.to(device, non_blocking=True))

    def without_moves(self, rows: Tensor | slice = slice(None)) -> Batch:
        """The same with the last moves of those rows unknown, as from a bare FEN."""
        bitboards = self.bitboards.clone()
        bitboards[rows, HALFMOVE:] = 0
        return replace(self, bitboards=bitboards)

    def part(self, rows: slice) -> Batch:
        """Some of the positions."""
        return self._each(lambda value: value[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(**{name: None if value is None else change(value) for name, value in vars(self).items()})

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the network takes: planes `[B, 24, 8, 8]`, both ratings `[B]`."""
        return planes_of(self.bitboards, self.halfmove, self.black), self.elo_self, self.elo_opponent


def planes_of(bitboards: Tensor, halfmove: Tensor, black: Tensor) -> Tensor:
    """`movemask.encoding.movemask_planes.expand` on the device: float32 `[B, 24, 8, 8]`, channels last."""
    squares = torch.arange(64, device=bitboards.device)
    planes = torch.empty(len(bitboards), 64, PLANES, device=bitboards.device)
    bits = ((bitboards[:, None, :] >> squares[None, :, None]) & 1).float()
    planes[:, :, :HALFMOVE], planes[:, :, LAST_MOVES:] = bits[:, :, :HALFMOVE], bits[:, :, HALFMOVE:]
    planes[:, :, HALFMOVE] = (halfmove.float().clamp(max=100) / 100)[:, None]
    planes[:, :, HALFMOVE + 1] = black.float()[:, None]
    planes[:, :, HALFMOVE + 2] = 1.0
    return planes.view(-1, 8, 8, PLANES).permute(0, 3, 1, 2)


def gathered(dataset: Dataset, rows: NDArray[np.int64], legal: NDArray[np.bool_] | None = None) -> Batch:
    """The batch of those rows."""
    positions = dataset.positions
    taught = () if dataset.targets is None else map(torch.from_numpy, dataset.targets.padded(rows))
    return Batch(
        torch.from_numpy(positions.bitboards[rows].view(np.int64)),
        torch.from_numpy(positions.halfmove[rows]),
        torch.from_numpy((positions.ply[rows] & 1).astype(np.bool_)),
        torch.from_numpy(dataset.elo_self[rows].astype(np.float32)),
        torch.from_numpy(dataset.elo_opponent[rows].astype(np.float32)),
        torch.from_numpy(positions.slot[rows].astype(np.int64)),
        torch.from_numpy(dataset.result[rows].astype(np.int64)),
        None if legal is None else torch.from_numpy(legal),
        *taught,
    )


def stream(
    dataset: Dataset, order: Order, first: int, last: int, mask_processes: int, masked: float = 1.0, bare: float = 0.0
) -> Iterator[Batch]:
    """Batches `first` to `last` (left out); with `mask_processes` their legal slots too, found by as many processes, or
    those of a share `masked` of each batch, its first positions. The last moves are left out of a share `bare` of it.
    """
    with ExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(1))
        pool = None
        if mask_processes:
            pool = stack.enter_context(ProcessPoolExecutor(mask_processes, initializer=end_with_parent))

        def made(step: int, rows: NDArray[np.int64], masks: list[Future[NDArray[np.bool_]]]) -> Batch:
            batch = gathered(dataset, rows, np.concatenate([mask.result() for mask in masks]) if masks else None)
            left_out = np.random.default_rng(step).random(len(rows)) < bare
            return batch.without_moves(torch.from_numpy(left_out))

        def begun(step: int) -> Future[Batch]:
            rows = order.indices(step)
            masks = []
            if pool is not None:
                parts = np.array_split(rows[: ceil(masked * len(rows))], mask_processes)
                masks = [pool.submit(legal_mask, dataset.positions.bitboards[part]) for part in parts]
            return thread.submit(made, step, rows, masks)

        ahead = [begun(step) for step in range(first, min(first + AHEAD, last))]
        for step in range(first, last):
            batch = ahead.pop(0).result()
            if step + AHEAD < last:
                ahead.append(begun(step + AHEAD))
            yield batch
