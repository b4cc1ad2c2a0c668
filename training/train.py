"""Trains the network of a run, going on from its last checkpoint: `python -m training.train RUN_FOLDER`.

Plain cross-entropy over all slots, legal or not, so that raw leakage means something; the value head's loss beside it.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from tqdm import trange

from training.config import Run
from training.data import planes_of
from training.network import Network

CHECKPOINT = "checkpoint.pt"


def tensors(packed: NDArray[np.void]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """planes `[B, 18, 8, 8]`, both Elos `[B]`, the slot played `[B]`, the result `[B]`."""
    return (
        torch.from_numpy(planes_of(packed)),
        torch.from_numpy(packed["elo_self"].astype(np.float32)),
        torch.from_numpy(packed["elo_opponent"].astype(np.float32)),
        torch.from_numpy(packed["slot"].astype(np.int64)),
        torch.from_numpy(packed["result"].astype(np.int64)),
    )


def train(run: Run) -> None:
    torch.manual_seed(run.seed)
    shard = np.load(run.folder / "train.npy", mmap_mode="r")
    held_out = tensors(np.load(run.folder / "validation.npy", mmap_mode="r")[:8192])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = Network(run.filters, run.blocks).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), lr=run.learning_rate, weight_decay=run.weight_decay)
    steps = run.positions // run.batch
    resumed = _resume(run, network, optimizer)
    started = time.monotonic()
    for done in trange(resumed, steps, initial=resumed, total=steps, unit=" steps", mininterval=5):
        rate = _rate(done / steps)
        for group in optimizer.param_groups:
            group["lr"] = run.learning_rate * rate
        start = done * run.batch % (len(shard) - run.batch + 1)
        batch = [part.to(device) for part in tensors(shard[start : start + run.batch])]
        planes, elo_self, elo_opponent, slot, result = batch
        with torch.autocast(device, dtype=torch.bfloat16):
            logits, value = network(planes.contiguous(memory_format=torch.channels_last), elo_self, elo_opponent)
        policy_loss = functional.cross_entropy(logits.float(), slot)
        value_loss = functional.cross_entropy(value.float(), result, ignore_index=-1)
        optimizer.zero_grad(set_to_none=True)
        (policy_loss + run.value_weight * value_loss).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if (done + 1) % run.checkpoint_every == 0 or done + 1 == steps:
            _save(run, network, optimizer, done + 1)
            line = f"step {done + 1} loss {policy_loss.item():.4f} value {value_loss.item():.4f}"
            accuracy, entropy = validate(network, held_out, device)
            line += f" validation top-1 {accuracy:.4f} cross-entropy {entropy:.4f} s {time.monotonic() - started:.0f}"
            with open(run.folder / "log.txt", "a") as log:
                log.write(line + "\n")


@torch.no_grad()
def validate(network: Network, held_out: tuple[Tensor, ...], device: str) -> tuple[float, float]:
    """Top-1 and cross-entropy over all slots (no mask) on held-out positions."""
    network.eval()
    hits = loss = 0.0
    for start in range(0, len(held_out[0]), 1024):
        planes, elo_self, elo_opponent, slot, _ = (part[start : start + 1024].to(device) for part in held_out)
        logits, _ = network(planes, elo_self, elo_opponent)
        hits += (logits.argmax(1) == slot).sum().item()
        loss += functional.cross_entropy(logits, slot, reduction="sum").item()
    network.train()
    return hits / len(held_out[0]), loss / len(held_out[0])


def _rate(done: float) -> float:
    """Warm-up over the first 3 %, then a cosine down to zero."""
    return min(done / 0.03, 1.0) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-4


def _resume(run: Run, network: Network, optimizer: torch.optim.Optimizer) -> int:
    path = run.folder / CHECKPOINT
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _save(run: Run, network: Network, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Writes beside the last checkpoint and renames, so that one cut off half-way does not destroy the one before."""
    path = run.folder / CHECKPOINT
    half = path.with_suffix(".part")
    torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, half)
    os.replace(half, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="train, or go on training, the network of a run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--positions", type=int, default=Run.positions)
    arguments = parser.parse_args()
    train(Run(arguments.folder, positions=arguments.positions))
