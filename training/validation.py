"""What weights are worth on held-out positions, and whose are better: `python -m training.validation RUN.toml DIR DIR`.

Measures the weights in each folder (its checkpoint, or `trunk.pt`) on the same positions of the validation split, from
the FEN alone and with the game. The last line names the folder with the lowest cross-entropy, summed over both inputs.
Errors are standard errors; that of a difference is the error of the differences position by position.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import checkpoints, dataset
from training.batches import Batch, best_device, gathered
from training.config import Run, load_run
from training.losses import divergences, outcome_loss, surprises
from training.maia3 import Teacher
from training.network import Network
from training.rounding import Range, hold

COMPARED = 8192  # positions that decide between weights: top-1 has a standard error of 0.55 points (2,048: 1.1)


@dataclass(frozen=True)
class Scores:
    """Of `N` held-out positions, `[N]` each."""

    top1: Tensor  # 1 where the likeliest legal move was played, else 0
    cross_entropy: Tensor  # nats over the legal slots
    kl: Tensor  # nats, of the policy from the teacher's
    raw_leakage: Tensor
    value: float  # mean cross-entropy of the result

    def errors(self) -> dict[str, float]:
        """Standard errors of the means of top-1 and cross-entropy, positions taken as independent."""
        return {name: standard_error(getattr(self, name)) for name in ("top1", "cross_entropy")}


def standard_error(values: Tensor) -> float:
    """Of the mean of `[N]`."""
    return float(values.double().std() / len(values) ** 0.5)


def held_out(run: Run, teacher: Teacher | None, device: str = "cpu", count: int = 2048) -> list[list[Batch]]:
    """Positions of the validation split after the opening, of games by many players where there are any, in batches:
    the positions alone, then with the games before them. Lessons have no states, which are 590 kB a position."""
    split = dataset.load(run.data, "validation")
    later = split.ply >= run.data.opening_plies
    eligible = np.flatnonzero(later & split.many_players if (later & split.many_players).any() else later)
    if not len(eligible):
        raise SystemExit(f"{run.data.folder}: no game in the validation split (two in a hundred): give it more games")
    rows = np.random.default_rng(run.seed).permutation(eligible)[:count]
    parts = np.array_split(rows, max(len(rows) // 128, 1))

    def made(part: NDArray[np.int64], bare: bool) -> Batch:
        batch = gathered(split, part, np.full(len(part), bare), device, teacher)
        return batch if batch.lesson is None else replace(batch, lesson=replace(batch.lesson, states=None))

    return [[made(part, bare) for part in parts] for bare in (True, False)]


@torch.no_grad()
def score(network: Network, batches: Sequence[Batch]) -> Scores:
    """The network's scores on batches that have a lesson."""
    network.eval()
    parts: list[tuple[Tensor, ...]] = []
    value = 0.0
    for batch in batches:
        assert batch.lesson is not None
        logits, results = network(*batch.inputs())
        first = logits.masked_fill(~batch.legal, -torch.inf).argmax(1) == batch.slot
        leaked = (torch.softmax(logits, 1) * ~batch.legal).sum(1)
        surprised = surprises(logits, batch.slot, batch.legal)
        parts.append((first.float(), surprised, divergences(logits, batch.lesson, batch.legal), leaked))
        value += outcome_loss(results, batch.result).item() * len(batch.slot)
    network.train()
    columns = [torch.cat(column).cpu() for column in zip(*parts, strict=True)]
    return Scores(*columns, value / len(columns[0]))


def validate(network: Network, batches: Sequence[Batch]) -> dict[str, float]:
    """The means of the scores, and the standard errors of top-1 and cross-entropy, for the log."""
    scores = score(network, batches)
    means = {name: getattr(scores, name).mean().item() for name in ("top1", "cross_entropy", "kl", "raw_leakage")}
    errors = {f"{name}_error": error for name, error in scores.errors().items()}
    return {name: round(value, 4) for name, value in {**means, "value": scores.value, **errors}.items()}


def compared(by_name: Mapping[str, Sequence[Scores]]) -> tuple[str, str]:
    """The table of scores by name, from the FEN alone and with the game, and the name whose cross-entropy summed over
    both is lowest."""
    sums = {
        name: torch.stack([one.cross_entropy for one in scores]).sum(0).double() for name, scores in by_name.items()
    }
    lowest = min(sums, key=lambda name: float(sums[name].mean()))
    head = (
        "",
        "FEN alone: top-1, cross-entropy, KL, raw leakage",
        "with the game",
        "summed cross-entropy",
        "more than",
    )
    lines = [f"|{'|'.join(f' {cell} ' for cell in head)} {lowest} |", "|---" * len(head) + "|"]
    for name, scores in by_name.items():
        beyond = sums[name] - sums[lowest]
        cells = [*map(_cell, scores), f"{sums[name].mean():.4f} ± {standard_error(sums[name]):.4f}"]
        cells.append("" if name == lowest else f"{beyond.mean():.4f} ± {standard_error(beyond):.4f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines), lowest


def _cell(scores: Scores) -> str:
    error = scores.errors()
    return (
        f"{100 * scores.top1.mean():.2f} ± {100 * error['top1']:.2f} %, "
        f"{scores.cross_entropy.mean():.4f} ± {error['cross_entropy']:.4f}, "
        f"{scores.kl.mean():.4f}, {scores.raw_leakage.mean():.4f}"
    )


def load_network(run: Run, folder: Path, device: str) -> Network:
    """The network of a folder's newest checkpoint, with its ranges; leaves the program where there is none."""
    state = checkpoints.load(folder)
    if state is None:
        raise SystemExit(f"{folder}: no checkpoint and no {checkpoints.TRUNK}")
    network = Network(run.network).to(device)
    network.load_state_dict(state["network"])
    hold(network, {name: Range(**one) for name, one in state.get("ranges", {}).items()})
    return network


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="which weights are better, on held-out positions")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml, for its shards and its teacher")
    parser.add_argument("folders", type=Path, nargs="+", help="of weights, such as training/checkpoints/movemask-8")
    parser.add_argument("--positions", type=int, default=COMPARED)
    arguments = parser.parse_args()
    run, place = load_run(arguments.run), best_device()
    torch.set_num_threads(run.training.threads)
    teacher = Teacher(run.teaching.teacher, place, bfloat16=run.training.bfloat16)
    held_out_batches = held_out(run, teacher, place, arguments.positions)
    by_name = {
        str(folder): [score(network, batches) for batches in held_out_batches]
        for folder in arguments.folders
        for network in [load_network(run, folder, place)]
    }
    table, lowest = compared(by_name)
    positions = sum(len(batch.slot) for batch in held_out_batches[0])
    print(f"{positions:,} validation positions, ± one standard error\n\n{table}\n")
    print(f"lowest: {lowest}")


if __name__ == "__main__":
    main()
