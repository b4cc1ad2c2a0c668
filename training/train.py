"""Trains the network of a run, going on from its last checkpoint: `python -m training.train RUN.toml`.

The teacher runs beside it, on a thread of its own. First each layer learns alone what two of the teacher's do to the
teacher's own states, then the network runs whole and its states, its policy and its value are those to match. A run
takes several stretches: it saves every two minutes, when interrupted, and after `--seconds`. `--anneal` brings the rate
to zero for a network that is used before the run's positions are seen. An anneal may take several stretches too: its
checkpoint says where it started. The run itself goes on from `trunk.pt`.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from training import checkpoints, config, dataset
from training.batches import Batch, Ready, best_device, stream
from training.config import Run, load_run
from training.losses import played_loss, rules_loss, states_loss, taught_loss, value_loss
from training.maia3 import Teacher
from training.muon import Muon
from training.network import Network
from training.rounding import SHARE, Range, held_ranges, hold, ranges
from training.targets import ready
from training.validation import held_out, validate

_SECONDS = "{l_bar}{bar}| {n:.0f} of {total:.0f} s{postfix}"
STOPPED = 20.0  # seconds: a step that takes longer was stopped from outside, and the rest is not of the stretch


@dataclass(frozen=True)
class Anneal:
    """Positions over which the rate falls on a straight line to zero, and how many the run had seen at the start."""

    start: int
    positions: int

    @property
    def end(self) -> int:
        """Number of positions that the run has seen when the rate is zero."""
        return self.start + self.positions

    def factor(self, seen: int) -> float:
        """Share of the learning rate that is left after `seen` positions of the run."""
        return max((self.end - seen) / self.positions, 0.0)


def train(
    run: Run,
    seconds: float = inf,
    anneal: int | None = None,
    anneal_seconds: float = inf,
    *,
    rounding: bool = False,
) -> None:
    """Trains until the run's positions are seen, or for `seconds`; raises SystemExit where the loss is no number.

    With `anneal` the rate falls on a straight line to zero over that many positions, and training ends there. The
    checkpoint holds the anneal: a run that is started again goes on with it, whether `anneal` is given again or not.
    `anneal_seconds` does the same by the clock, within one process, for a machine that is lent for a known time.
    With `rounding` the network is rounded as its integers will be, from now on.
    """
    settings, taught, device = run.training, run.teaching, best_device()
    torch.manual_seed(run.seed)
    torch.set_num_threads(settings.threads)
    teacher = Teacher(taught.teacher, device, bfloat16=settings.bfloat16)
    network = Network(run.network).to(device)
    optimizers = optimizers_of(network, settings)
    steps, done, spent = settings.positions // settings.batch, 0, 0.0
    run.folder.mkdir(parents=True, exist_ok=True)
    state = checkpoints.load(run.folder)
    if state is not None:
        done, spent = _restored(state, run, network, optimizers)
    annealing = _anneal(state, done * settings.batch, anneal, settings.batch)
    if annealing is not None:
        steps = min(steps, annealing.end // settings.batch)
    training_set = dataset.load(run.data, "train")
    held_out_batches = held_out(run, teacher, device, settings.validated)
    if rounding and not held_ranges(network):
        hold(network, ranges(network, (batches[0].inputs() for batches in held_out_batches), SHARE))
    progress = Progress(run, network, optimizers, spent, held_out_batches, annealing)
    print(
        f"{len(training_set):,} positions, {_parameters(network):,} parameters, {device}, from step {done} to {steps}"
    )
    print("".join(f"skipped: {reason}\n" for reason in training_set.skipped), end="", flush=True)
    rows = dataset.order(training_set, run.data, run.seed)
    batches = stream(
        training_set,
        rows,
        done,
        settings.batch,
        taught.bare,
        device,
        teacher,
        _ready(run, training_set),
        settings.gatherers,
    )
    whole = torch.compile(network.states) if settings.compile else network.states
    first, began, elapsed = done, time.monotonic(), 0.0
    limit = min(seconds, anneal_seconds)
    bar = _bar(limit, done * settings.batch, steps * settings.batch)
    stopping = _asked_to_stop()
    stop = next(stopping)
    while done < steps and not stop:
        batch = next(batches)
        elapsed += min(time.monotonic() - began, STOPPED)
        began = time.monotonic()
        warm_up = min((done - first + 1) / settings.warm_up, 1.0)
        left = max(1 - elapsed / anneal_seconds, 0.0)
        if annealing is not None:
            left = min(left, annealing.factor(done * settings.batch))
        _set_rate(optimizers, settings.learning_rate * min(warm_up, left))
        losses = step(network, whole, optimizers, batch, run, apart=done * settings.batch < taught.apart)
        done, stop = done + 1, next(stopping) or elapsed >= limit
        if limit < inf:
            bar.set_postfix(positions=f"{done * settings.batch:,}", refresh=False)
            bar.update(min(elapsed, limit) - bar.n)
        else:
            bar.update(settings.batch)
        progress.after(done, losses, last=done == steps or stop)
    bar.close()
    batches.close()  # type: ignore[attr-defined]


def _anneal(state: dict[str, Any] | None, seen: int, positions: int | None, batch: int) -> Anneal | None:
    """The anneal that the checkpoint is in, else a new one over `positions`, else None.

    An anneal has finished when what is left of it is less than a batch.
    """
    if state is not None and state.get("anneal") is not None:
        annealing = Anneal(**state["anneal"])
        if seen + batch <= annealing.end:
            print(f"goes on with the anneal from {annealing.start:,} to {annealing.end:,} positions")
            return annealing
    return Anneal(seen, positions) if positions is not None else None


def _bar(limit: float, seen: int, total: int) -> tqdm[Any]:
    """Progress towards the end of the stretch: its seconds if it has a limit, else the run's positions."""
    if limit < inf:
        return tqdm(total=limit, unit=" s", mininterval=30, bar_format=_SECONDS)
    return tqdm(initial=seen, total=total, unit=" positions", mininterval=30)


def _ready(run: Run, training_set: dataset.Dataset) -> Ready | None:
    """The part of the batches that ready policies teach, or None for a run without them."""
    taught = run.teaching
    if taught.targets is None or not taught.targets_share:
        return None
    targets = ready(taught.targets, training_set, run.data)
    print(f"{len(targets):,} ready policies", *(f"skipped: {reason}" for reason in targets.skipped), sep="\n")
    order = np.random.default_rng(run.seed).permutation(len(targets))
    return Ready(targets, order, taught.targets_share, -(-taught.apart // run.training.batch))


def step(
    network: Network, whole: Any, optimizers: list[torch.optim.Optimizer], batch: Batch, run: Run, *, apart: bool
) -> dict[str, Tensor]:
    """One step of all optimizers; the parts of the loss. `apart`: each layer on the teacher's own states."""
    assert batch.lesson is not None, "a batch to learn from has a lesson"
    taught, lesson = run.teaching, batch.lesson
    expected = [lesson.states[number] for number in taught.matched] if lesson.states else []
    with torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16, enabled=run.training.bfloat16):
        if apart:
            assert lesson.states is not None, "layers learn apart from the teacher's states"
            inputs = [lesson.states[number] for number in (0, *taught.matched)]
            own = [network.embedded(*batch.inputs())]
            own += [layer(x, network.biases) for layer, x in zip(network.layers, inputs, strict=False)]
            logits, value = network.head(inputs[-1])
            expected = inputs
        else:
            own = whole(*batch.inputs())[1:]  # what goes in is free: it holds more than the teacher's
            logits, value = network.head(own[-1])
    logits, value = logits.float(), value.float()
    losses = {
        "taught": taught_loss(logits, lesson, batch.legal),
        "played": played_loss(logits, batch.slot, batch.legal),
        "rules": rules_loss(logits, batch.legal),
    }
    if lesson.value is not None:
        losses["value"] = value_loss(value, lesson)
    if lesson.states is not None:
        losses["states"] = states_loss(own, expected)
    total = (
        (1 - taught.played_weight) * losses["taught"]
        + taught.played_weight * losses["played"]
        + taught.rules_weight * losses["rules"]
        + taught.value_weight * losses.get("value", 0)
        + taught.states_weight * losses.get("states", 0)
    )
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    total.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return {name: loss.detach() for name, loss in losses.items()}


class Progress:
    """What a stretch leaves behind: log lines, checkpoints, and where the loss is no number the reason for the end."""

    def __init__(
        self,
        run: Run,
        network: Network,
        optimizers: list[torch.optim.Optimizer],
        spent: float,
        held_out_batches: list[list[Batch]],
        annealing: Anneal | None,
    ) -> None:
        self._run, self._network, self._optimizers, self._spent, self._held = (
            run,
            network,
            optimizers,
            spent,
            held_out_batches,
        )
        self._annealing = annealing
        self._clock = self._saved = time.monotonic()
        self._sums: dict[str, Tensor] = {}
        self._summed: Counter[str] = Counter()  # batches with that loss: a ready policy has neither value nor states

    def after(self, done: int, losses: dict[str, Tensor], *, last: bool) -> None:
        """Called after each step; `done` steps are behind, the `last` one of the stretch among them or not."""
        settings = self._run.training
        self._sums |= {name: loss + self._sums.get(name, 0) for name, loss in losses.items()}
        self._summed.update(losses.keys())
        every = max(settings.validate_positions // settings.batch, 1)
        if last or done % every == 0:
            _require_finite(losses, done)
            self._log(done)
        if last or time.monotonic() - self._saved >= settings.checkpoint_seconds:
            self._saved = time.monotonic()
            spent = self._spent + self._saved - self._clock
            state = _state(self._network, self._optimizers, done, settings.batch, spent, self._annealing)
            checkpoints.save(self._run.folder, state)

    def _log(self, done: int) -> None:
        line = {
            "positions": done * self._run.training.batch,
            "seconds": round(self._spent + time.monotonic() - self._clock, 1),
            **{name: round(loss.item() / self._summed[name], 4) for name, loss in self._sums.items()},
            "bare": validate(self._network, self._held[0]),
            "with_game": validate(self._network, self._held[1]),
        }
        self._sums, self._summed = {}, Counter()
        with open(self._run.folder / "log.jsonl", "a") as log:
            log.write(json.dumps(line) + "\n")


def optimizers_of(network: Network, settings: config.Training) -> list[torch.optim.Optimizer]:
    """Muon (Jordan 2024) for the layers' matrices, AdamW for all else."""
    matrices = [parameter for parameter in network.layers.parameters() if parameter.ndim == 2]
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in network.parameters() if id(parameter) not in chosen]
    decay = settings.weight_decay
    return [
        Muon(matrices, lr=settings.learning_rate, weight_decay=decay),
        torch.optim.AdamW(others, lr=settings.learning_rate, weight_decay=decay, betas=(0.9, 0.98)),
    ]


def _set_rate(optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def _state(
    network: Network,
    optimizers: list[torch.optim.Optimizer],
    done: int,
    batch: int,
    spent: float,
    annealing: Anneal | None,
) -> dict[str, Any]:
    return {
        "network": network.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "ranges": {name: asdict(one) for name, one in held_ranges(network).items()},
        "step": done,
        "batch": batch,
        "seconds": spent,
        "anneal": asdict(annealing) if annealing is not None else None,
    }


def _restored(
    state: dict[str, Any], run: Run, network: Network, optimizers: list[torch.optim.Optimizer]
) -> tuple[int, float]:
    try:
        network.load_state_dict(state["network"])
    except RuntimeError:
        raise SystemExit(f"{run.folder} holds a checkpoint of another network: name another folder") from None
    hold(network, {name: Range(**one) for name, one in state.get("ranges", {}).items()})
    if "optimizers" in state:  # else they begin anew: the state of an earlier stretch that was kept without them
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    return checkpoints.seen(state) // run.training.batch, float(state["seconds"])


def _require_finite(losses: dict[str, Tensor], step: int) -> None:
    for name, loss in losses.items():
        if not torch.isfinite(loss):
            raise SystemExit(
                f"step {step}: the loss {name!r} is {loss.item()}; the last checkpoint is kept: lower learning_rate"
            )


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
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml")
    parser.add_argument("--seconds", type=float, default=inf, help="stop after a stretch of this long")
    parser.add_argument(
        "--anneal",
        type=_positions,
        metavar="POSITIONS",
        help="bring the rate down to zero over this many positions, then stop; goes on after a restart",
    )
    parser.add_argument(
        "--anneal-seconds", type=float, default=inf, help="the same by the clock, on a machine lent for a known time"
    )
    parser.add_argument("--rounding", action="store_true", help="round as the integers will, from now on")
    arguments = parser.parse_args()
    train(
        load_run(arguments.run),
        arguments.seconds,
        arguments.anneal,
        arguments.anneal_seconds,
        rounding=arguments.rounding,
    )


def _positions(text: str) -> int:
    number = int(text.replace(",", "").replace("_", ""))
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return number


if __name__ == "__main__":
    main()
