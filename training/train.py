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
from training.losses import policy_loss, value_loss
from training.network import Network

VALIDATED = 8192  # positions


def train(run: Run, seconds: float = float("inf")) -> None:
    """Trains until the run's positions are seen, or for `seconds`; raises SystemExit where the loss is no number."""
    torch.manual_seed(run.seed)
    settings = run.training
    device = "cuda" if torch.cuda.is_available() else "cpu"
    seen = dataset.load(run.data, "train", run.seed)
    held_out = _held_out(run)
    network = Network(run.network).to(device)
    optimizers = _optimizers(network, settings)
    steps, done, spent = settings.positions // settings.batch, 0, 0.0
    run.folder.mkdir(parents=True, exist_ok=True)
    if (state := checkpoints.load(run.folder)) is not None:
        done, spent = _restored(state, run, network, optimizers)
    forward = torch.compile(network) if settings.compile else network
    order = Order(len(seen), settings.batch, run.seed)
    masks = settings.mask_processes if settings.legality_weight < 1 else 0
    print(f"{len(seen):,} positions, {_parameters(network):,} parameters, {device}, from step {done} to {steps}")
    if seen.skipped:
        print("\n".join(f"skipped: {reason}" for reason in seen.skipped))
    clock, saved, waited, validated = time.monotonic(), time.monotonic(), 0.0, done * settings.batch
    stopping = _asked_to_stop()
    bar = tqdm(initial=done * settings.batch, total=steps * settings.batch, unit=" positions", mininterval=5)
    batches = stream(seen, order, done, steps, masks)
    while done < steps and not next(stopping) and time.monotonic() - clock < seconds:
        before = time.monotonic()
        batch = next(batches).to(device)
        waited += time.monotonic() - before
        _schedule(optimizers, settings, done / steps)
        policy, value = _step(forward, network, optimizers, batch, settings)
        done += 1
        bar.update(settings.batch)
        last = done == steps
        if last or done * settings.batch - validated >= settings.validate_positions:
            validated = done * settings.batch
            _require_finite(policy, done)
            elapsed = time.monotonic() - clock
            line = {
                "step": done,
                "positions": validated,
                "seconds": round(spent + elapsed, 1),
                "waited_share": round(waited / elapsed, 4),
                "loss": round(policy.item(), 4),
                "value_loss": round(value.item(), 4),
                **validate(network, held_out, device),
            }
            with open(run.folder / "log.jsonl", "a") as log:
                log.write(json.dumps(line) + "\n")
            bar.set_postfix(top1=line["top1"], entropy=line["cross_entropy"])
        if last or time.monotonic() - saved >= settings.checkpoint_seconds:
            saved = time.monotonic()
            checkpoints.save(run.folder, _state(run, network, optimizers, done, spent + saved - clock))
    checkpoints.save(run.folder, _state(run, network, optimizers, done, spent + time.monotonic() - clock))
    bar.close()
    batches.close()


@torch.no_grad()
def validate(network: Network, held_out: Batch, device: str) -> dict[str, float]:
    """Masked top-1 and cross-entropy, cross-entropy over all slots and mean raw leakage, on held-out positions."""
    network.eval()
    sums: dict[str, float] = dict.fromkeys(("top1", "cross_entropy", "plain_cross_entropy", "raw_leakage", "value"), 0)
    count = len(held_out.slot)
    for start in range(0, count, 1024):
        part = Batch(**{name: value[start : start + 1024] for name, value in vars(held_out).items()}).to(device)
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
    forward: Any, network: Network, optimizers: list[torch.optim.Optimizer], batch: Batch, settings: config.Training
) -> tuple[Tensor, Tensor]:
    with torch.autocast(batch.slot.device.type, dtype=torch.bfloat16):
        logits, value = forward(*batch.inputs())
    policy = policy_loss(logits.float(), batch.slot, batch.legal, settings.legality_weight)
    outcome = value_loss(value.float(), batch.result)
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    (policy + settings.value_weight * outcome).backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return policy.detach(), outcome.detach()


def _optimizers(network: Network, settings: config.Training) -> list[torch.optim.Optimizer]:
    """Muon (Jordan 2024) for the body's large matrices, AdamW for all else; or AdamW for everything."""
    matrices = [
        parameter
        for name, parameter in network.body.named_parameters()
        if settings.optimizer == "muon" and parameter.ndim == 2 and min(parameter.shape) >= 32 and "place" not in name
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


def _schedule(optimizers: list[torch.optim.Optimizer], settings: config.Training, done: float) -> None:
    """Sets the rates for a run of which the share `done` is behind."""
    rate = min((done + 1e-4) / max(settings.warm_up, 1e-4), 1.0, (1 - done) / max(settings.decay, 1e-4))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate


def _held_out(run: Run) -> Batch:
    """Positions of the validation split after the opening, of games by many players where there are any."""
    split = dataset.load(run.data, "validation", run.seed)
    later = split.positions.ply >= run.data.opening_plies
    wanted = np.flatnonzero(later & split.many_players if (later & split.many_players).any() else later)
    if not len(wanted):
        raise SystemExit(f"{run.data.folder}: no game in the validation split (two in a hundred): give it more games")
    rows = np.random.default_rng(run.seed).permutation(wanted)[:VALIDATED]
    return gathered(split, rows, legal_mask(split.positions.bitboards[rows]))


def _state(
    run: Run, network: Network, optimizers: list[torch.optim.Optimizer], done: int, spent: float
) -> dict[str, Any]:
    return {
        "network": network.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "settings": repr(run.network),
        "step": done,
        "seconds": spent,
    }


def _restored(
    state: dict[str, Any], run: Run, network: Network, optimizers: list[torch.optim.Optimizer]
) -> tuple[int, float]:
    if state["settings"] != repr(run.network):
        raise SystemExit(
            f"{run.folder} holds a checkpoint of another network, {state['settings']}: name another folder"
        )
    network.load_state_dict(state["network"])
    for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    return int(state["step"]), float(state["seconds"])


def _require_finite(loss: Tensor, step: int) -> None:
    if not torch.isfinite(loss):
        raise SystemExit(f"step {step}: the loss is {loss.item()}; the last checkpoint is kept: lower learning_rate")


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
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-2.toml")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after a sitting of this long")
    arguments = parser.parse_args()
    train(load_run(arguments.run), arguments.seconds)


if __name__ == "__main__":
    main()
