"""What a step of training costs, one thing changed after another: `python -m training.speed RUN.toml`

Each row is the run's own network on positions of the validation split, towards the moves that were played. The rows are
timed in turn, each in a process of its own, in several rounds; the fastest round of each is told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from training import dataset, parallel
from training.batches import Batch, gathered
from training.config import Run, load_run
from training.dataset import Order
from training.losses import policy_loss, value_loss
from training.network import Convolution, Network
from training.train import optimizers_of

ROUNDS, STEPS = 2, 12


@dataclass(frozen=True)
class Way:
    """One way to train."""

    name: str
    batch: int = 256
    bfloat16: bool = True
    channels_last: bool = True
    compiled: bool = True
    processes: int = 1
    threads: int = 1


WAYS = (
    Way("float32, channels first", bfloat16=False, channels_last=False, compiled=False),
    Way("float32, channels last", bfloat16=False, compiled=False),
    Way("bfloat16, channels first", channels_last=False, compiled=False),
    Way("bfloat16, channels last", compiled=False),
    Way("the same, compiled"),
    Way("the same, compiled, batches of 128", batch=128),
    Way("the same, compiled, batches of 512", batch=512),
    Way("the same, compiled, two threads", threads=2),
    Way("the same, compiled, two processes", processes=2),
)


class ChannelsFirst(Convolution):
    """The same convolution, its weight laid out as torch lays it out by itself."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight.view(self.shape).permute(0, 3, 1, 2).contiguous(), padding=1)


def rate(way: Way, run: Run) -> float:
    """Positions per second, after a step that compiles."""
    seen = dataset.load(run.data, "validation", run.seed)
    told: list[float] = []

    def timed(group: parallel.Group) -> None:
        step = _step(way, run, group)
        torch.set_num_threads(way.threads)
        order = Order(len(seen), way.batch, run.seed, group.number, group.size)
        batches = [gathered(seen, order.indices(number)) for number in range(STEPS)]
        step(batches[0])
        begun = time.perf_counter()
        for batch in batches:
            step(batch)
        told.append(STEPS * way.batch / (time.perf_counter() - begun))

    parallel.together(way.processes, timed)
    return told[0]


def _step(way: Way, run: Run, group: parallel.Group) -> Callable[[Batch], None]:
    torch.manual_seed(run.seed)
    network = Network(run.network)
    if not way.channels_last:
        for module in network.modules():
            if isinstance(module, Convolution):
                module.__class__ = ChannelsFirst
    forward = torch.compile(network) if way.compiled else network
    optimizers = optimizers_of(network, run.training)

    def step(batch: Batch) -> None:
        planes, *ratings = batch.inputs()
        if not way.channels_last:
            planes = planes.contiguous()
        with torch.autocast("cpu", dtype=torch.bfloat16) if way.bfloat16 else nullcontext():
            logits, value = forward(planes, *ratings)
        loss = policy_loss(logits.float(), batch.slot, None) + value_loss(value.float(), batch.result)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        group.averaged(network, ())
        for optimizer in optimizers:
            optimizer.step()

    return step


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="positions per second of training, one thing changed after another")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-3.toml")
    run = load_run(parser.parse_args().run)
    run = replace(run, teaching=None)
    best = dict.fromkeys(WAYS, 0.0)
    for _ in range(ROUNDS):
        for way in WAYS:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                best[way] = max(best[way], alone.submit(rate, way, run).result())
    print("| a step | batch | positions/s | of the first |\n|---|---|---|---|")
    for way, found in best.items():
        print(f"| {way.name} | {way.batch} | {found:,.0f} | {found / best[WAYS[0]]:.2f} |")


if __name__ == "__main__":
    main()
