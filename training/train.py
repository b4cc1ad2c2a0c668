"""Trains the network of a run, going on from its last checkpoint: `python -m training.train RUN.toml`.

A run may take several sittings: it saves every two minutes, when interrupted, and after `--seconds`. The schedule is a
warm-up, a constant rate and a straight line down to zero, so that a run can be made longer until it begins to go down.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from training import checkpoints, config, dataset
from training.batches import Batch, gathered, stream
from training.config import Run, load_run
from training.dataset import Order
from training.legal import legal_mask
from training.losses import policy_loss, rules_loss, taught_loss, value_loss
from training.network import Network
from training.start import begin_with

VALIDATED = 8192  # positions
STOPPED = 20.0  # seconds: a step that takes longer was stopped from outside, and the rest is not of the sitting


def train(run: Run, seconds: float = inf, anneal: float = inf) -> None:
    """Trains until the run's positions are seen, or for `seconds`; raises SystemExit where the loss is no number.

    With `anneal` the rates go down on a straight line to zero in so many seconds, and the sitting ends: for a network
    that is used before all positions are seen. Keep the checkpoint from before it to go on with the run itself.
    """
    seen = dataset.load(run.data, "train", run.seed, run.teaching)
    torch.manual_seed(run.seed)
    settings = run.training
    device = _device()
    network = Network(run.network).to(device)
    optimizers = optimizers_of(network, settings)
    steps, done, spent = settings.positions // settings.batch, 0, 0.0
    run.folder.mkdir(parents=True, exist_ok=True)
    if (state := checkpoints.load(run.folder)) is not None:
        done, spent = _restored(state, run, network, optimizers)
    elif settings.start is not None:
        begin_with(network, settings.start)
    forward = torch.compile(network) if settings.compile else network
    order = Order(len(seen), settings.batch, run.seed)
    batches = stream(seen, order, done, steps, *_masks(run), bare=run.teaching.bare if run.teaching else 0.5)
    gone, began = 0.0, time.monotonic()
    progress = Progress(run, network, optimizers, spent)
    print(f"{len(seen):,} positions, {_parameters(network):,} parameters, {device}, from step {done} to {steps}")
    print("".join(f"skipped: {reason}\n" for reason in seen.skipped), end="", flush=True)
    bar = tqdm(initial=done * settings.batch, total=steps * settings.batch, unit=" positions", mininterval=5)
    stopping = _asked_to_stop()
    stop = False
    while done < steps and not stop:
        before = time.monotonic()
        batch = next(batches).to(device)
        progress.waited += time.monotonic() - before
        gone += min(time.monotonic() - began, STOPPED)
        began = time.monotonic()
        _schedule(optimizers, settings, done / steps, max(1 - gone / anneal, 0))
        policy, value = _step(forward, network, optimizers, batch, run)
        done, stop = done + 1, next(stopping) or gone >= min(seconds, anneal)
        bar.update(settings.batch)
        progress.after(done, policy, value, last=done == steps or stop)
    bar.close()
    batches.close()


class Progress:
    """What a sitting leaves behind: log lines, checkpoints, and where the loss is no number the reason for the end."""

    def __init__(self, run: Run, network: Network, optimizers: list[torch.optim.Optimizer], spent: float) -> None:
        self._run, self._network, self._optimizers, self._spent = run, network, optimizers, spent
        self._clock = self._saved = time.monotonic()
        self._held_out = held_out(run)
        self.waited = 0.0

    def after(self, done: int, policy: Tensor, value: Tensor, *, last: bool) -> None:
        """Called after each step; `done` steps are behind, the `last` one of the sitting among them or not."""
        settings = self._run.training
        if (
            last
            or done * settings.batch // settings.validate_positions
            > (done - 1) * settings.batch // settings.validate_positions
        ):
            _require_finite(policy, done)
            self._log(done, policy, value)
        if last or time.monotonic() - self._saved >= settings.checkpoint_seconds:
            self._saved = time.monotonic()
            spent = self._spent + self._saved - self._clock
            checkpoints.save(self._run.folder, _state(self._network, self._optimizers, done, spent))

    def _log(self, done: int, policy: Tensor, value: Tensor) -> None:
        elapsed = time.monotonic() - self._clock
        line = {
            "step": done,
            "positions": done * self._run.training.batch,
            "seconds": round(self._spent + elapsed, 1),
            "waited_share": round(self.waited / elapsed, 4),
            "loss": round(policy.item(), 4),
            "value_loss": round(value.item(), 4),
            **validate(self._network, self._held_out.without_moves(), _device()),
            "with_moves": validate(self._network, self._held_out, _device()),
        }
        with open(self._run.folder / "log.jsonl", "a") as log:
            log.write(json.dumps(line) + "\n")


@torch.no_grad()
def validate(network: Network, held_out: Batch, device: str) -> dict[str, float]:
    """Masked top-1 and cross-entropy, cross-entropy over all slots and mean raw leakage, on held-out positions."""
    network.eval()
    sums: dict[str, float] = dict.fromkeys(("top1", "cross_entropy", "plain_cross_entropy", "raw_leakage", "value"), 0)
    count = len(held_out.slot)
    for start in range(0, count, 1024):
        part = held_out.part(slice(start, start + 1024)).to(device)
        logits, value = network(*part.inputs())
        logits, value = logits.float(), value.float()
        assert part.legal is not None
        masked = logits.masked_fill(~part.legal, -torch.inf)
        sums["top1"] += (masked.argmax(1) == part.slot).sum().item()
        sums["cross_entropy"] += policy_loss(logits, part.slot, part.legal, 0).item() * len(part.slot)
        sums["plain_cross_entropy"] += policy_loss(logits, part.slot, None).item() * len(part.slot)
        sums["raw_leakage"] += (torch.softmax(logits, 1) * ~part.legal).sum().item()
        sums["value"] += value_loss(value, part.result).item() * len(part.slot)
    network.train()
    return {name: round(value / count, 4) for name, value in sums.items()}


def _step(
    forward: Any,
    network: Network,
    optimizers: list[torch.optim.Optimizer],
    batch: Batch,
    run: Run,
) -> tuple[Tensor, Tensor]:
    """One step of all optimizers; both losses."""
    with torch.autocast(batch.slot.device.type, dtype=torch.bfloat16):
        logits, value = forward(*batch.inputs())
    logits = logits.float()
    if run.teaching is not None and batch.taught is not None and batch.taught_slots is not None:
        policy = taught_loss(logits, batch.slot, batch.taught_slots, batch.taught, run.teaching.weight)
        if batch.legal is not None:
            policy = policy + run.teaching.rules_weight * rules_loss(logits[: len(batch.legal)], batch.legal)
    else:
        policy = policy_loss(logits, batch.slot, batch.legal, run.training.legality_weight)
    outcome = value_loss(value.float(), batch.result)
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    (policy + run.training.value_weight * outcome).backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return policy.detach(), outcome.detach()


def _masks(run: Run) -> tuple[int, float]:
    """How many processes find legal moves, and for what share of a batch."""
    if run.teaching is None:
        return (run.training.mask_processes if run.training.legality_weight < 1 else 0), 1.0
    return (run.training.mask_processes if run.teaching.rules_weight else 0), run.teaching.rules_share


def optimizers_of(network: Network, settings: config.Training) -> list[torch.optim.Optimizer]:
    """Muon (Jordan 2024) for the body's large matrices, AdamW for all else; or AdamW for everything."""
    matrices = [
        parameter
        for name, parameter in network.body.named_parameters()
        if settings.optimizer == "muon" and parameter.ndim == 2 and min(parameter.shape) >= 32
    ]
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in network.parameters() if id(parameter) not in chosen]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, lr=settings.adamw_rate, weight_decay=settings.weight_decay)
    ]
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, lr=settings.learning_rate, weight_decay=settings.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def _schedule(optimizers: list[torch.optim.Optimizer], settings: config.Training, done: float, left: float) -> None:
    """Sets the rates for a run of which the share `done` is behind; `left` is of a sitting that ends it early."""
    rate = min((done + 1e-4) / max(settings.warm_up, 1e-4), 1.0, (1 - done) / max(settings.decay, 1e-4), left)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate


def held_out(run: Run) -> Batch:
    """Positions of the validation split after the opening, of games by many players where there are any."""
    split = dataset.load(run.data, "validation", run.seed)
    later = split.positions.ply >= run.data.opening_plies
    wanted = np.flatnonzero(later & split.many_players if (later & split.many_players).any() else later)
    if not len(wanted):
        raise SystemExit(f"{run.data.folder}: no game in the validation split (two in a hundred): give it more games")
    rows = np.random.default_rng(run.seed).permutation(wanted)[:VALIDATED]
    return gathered(split, rows, legal_mask(split.positions.bitboards[rows]))


def _state(network: Network, optimizers: list[torch.optim.Optimizer], done: int, spent: float) -> dict[str, Any]:
    return {
        "network": network.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "step": done,
        "seconds": spent,
    }


def _restored(
    state: dict[str, Any], run: Run, network: Network, optimizers: list[torch.optim.Optimizer]
) -> tuple[int, float]:
    try:
        network.load_state_dict(state["network"])
    except RuntimeError:
        raise SystemExit(f"{run.folder} holds a checkpoint of another network: name another folder") from None
    for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
        peaks = [group["peak"] for group in optimizer.param_groups]  # the run's rates, not those of its last sitting
        optimizer.load_state_dict(kept)
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["peak"] = peak
    return int(state["step"]), float(state["seconds"])


def _require_finite(loss: Tensor, step: int) -> None:
    if not torch.isfinite(loss):
        raise SystemExit(f"step {step}: the loss is {loss.item()}; the last checkpoint is kept: lower learning_rate")


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _asked_to_stop() -> Iterator[bool]:
    """Yields False until SIGINT or SIGTERM came."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _: received.append(caught))
    while True:
        yield bool(received)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="train, or go on training, the network of a run")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-4.toml")
    parser.add_argument("--seconds", type=float, default=inf, help="stop after a sitting of this long")
    parser.add_argument(
        "--anneal", type=float, default=inf, help="bring the rates down to zero in so many seconds, then stop"
    )
    arguments = parser.parse_args()
    train(load_run(arguments.run), arguments.seconds, arguments.anneal)


if __name__ == "__main__":
    main()
