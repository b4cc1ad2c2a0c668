"""Masked softmax against what a user would otherwise call, as ratios of one run: `python -m benchmarks.softmax`.

`[1024, 1858]` float32 logits with 31 legal slots a row, one thread; and one row. torch is compared if it is installed.
Writes its table into benchmarks/results/softmax.md.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.special

from movemask.policy.softmax import softmax
from study.dense import gather_legal, masked_softmax

DOCUMENT = Path(__file__).parent / "results" / "softmax.md"
SLOTS, LEGAL = 1858, 31


def seconds(call: Callable[[], object]) -> float:
    """Best of seven timings of one call."""
    timer = timeit.Timer(call)
    number, _ = timer.autorange()
    return min(timer.repeat(7, number)) / number


def compared(rows: int) -> dict[str, float]:
    """Seconds of one call of each way."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(rows, SLOTS)).astype(np.float32) * 3
    mask = np.zeros((rows, SLOTS), dtype=bool)
    for row in range(rows):
        mask[row, rng.choice(SLOTS, LEGAL, replace=False)] = True
    slots, indptr = np.nonzero(mask)[1], np.arange(0, rows * LEGAL + 1, LEGAL)
    calls: dict[str, Callable[[], object]] = {
        "gather_legal + softmax (ragged)": lambda: softmax(*gather_legal(logits, slots, indptr)),
        "masked_softmax (dense)": lambda: masked_softmax(logits, mask),
        "scipy.special.softmax(where(mask, z, -inf))": lambda: scipy.special.softmax(
            np.where(mask, logits, -np.inf), axis=1
        ),
        "scipy.special.softmax(z), no mask": lambda: scipy.special.softmax(logits, axis=1),
    }
    try:
        import torch
    except ImportError:
        print("torch is not installed: not compared")
    else:
        torch.set_num_threads(1)
        z, m = torch.tensor(logits), torch.tensor(mask)
        calls["torch.softmax(z.masked_fill(~m, -inf))"] = lambda: torch.softmax(z.masked_fill(~m, -torch.inf), 1)
    return {name: seconds(call) for name, call in calls.items()}


def main() -> None:
    lines = ["| way | [1024, 1858] | as a multiple of ragged | [1, 1858] |", "|---|---|---|---|"]
    many, one = compared(1024), compared(1)
    ours = next(iter(many.values()))
    for name, taken in many.items():
        lines.append(f"| `{name}` | {1e6 * taken:.0f} µs | {taken / ours:.1f} | {1e6 * one[name]:.1f} µs |")
    table = "\n".join(lines)
    print(table)
    before, rest = DOCUMENT.read_text().split("<!-- speed -->\n")
    after = rest.split("<!-- /speed -->\n")[1]
    DOCUMENT.write_text(f"{before}<!-- speed -->\n{table}\n<!-- /speed -->\n{after}")


if __name__ == "__main__":
    main()
