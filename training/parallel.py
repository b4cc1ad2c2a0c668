"""Processes that train one network together: each takes its part of every batch, and all take the mean gradient.

Whether they do more than one process of as many threads depends on the network: `python -m training.speed` says.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed, nn

PATIENCE = timedelta(days=1)  # another may be stopped for a while


@dataclass(frozen=True)
class Group:
    """This process among `size`; the first one writes what there is to write."""

    number: int
    size: int

    @property
    def first(self) -> bool:
        """Whether this process writes the log and the checkpoints."""
        return self.number == 0

    def averaged(self, network: nn.Module, told: Sequence[float]) -> list[float]:
        """Makes each gradient the mean of the group's; returns the sum of what every process tells."""
        if self.size == 1:
            return list(told)
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), torch.tensor(told)])
        distributed.all_reduce(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient) / self.size)
            start += gradient.numel()
        return [float(number) for number in flat[start:]]


def together(size: int, sitting: Callable[[Group], None]) -> None:
    """Runs `sitting` in this process and in `size - 1` copies of it, which share what is in memory now."""
    if size == 1:
        sitting(Group(0, 1))
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        fork = multiprocessing.get_context("fork")
        others = [
            fork.Process(target=_member, args=(sitting, Group(n, size), meeting), daemon=True) for n in range(1, size)
        ]
        for other in others:
            other.start()
        _member(sitting, Group(0, size), meeting)
        for other in others:
            other.join()


def _member(sitting: Callable[[Group], None], group: Group, meeting: str) -> None:
    distributed.init_process_group("gloo", meeting, PATIENCE, rank=group.number, world_size=group.size)
    try:
        sitting(group)
    finally:
        distributed.destroy_process_group()
