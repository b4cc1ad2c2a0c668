"""The report's pictures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.measure import Measured

matplotlib.use("Agg")

BANDS = (1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400)
FEWEST = 100  # positions of a band that are worth a point


def draw(measured: Mapping[str, Measured], name: str, file: Path) -> None:
    """Four pictures in one PNG: accuracy by rating, reliability, surprise by ply's phase and raw leakage."""
    figure = Figure(figsize=(13, 9.5), layout="constrained")
    axes = figure.subplots(2, 2)
    _by_rating(axes[0, 0], measured)
    _reliability(axes[0, 1], measured[name], name)
    _leakage(axes[1, 0], measured)
    _surprise(axes[1, 1], measured)
    figure.savefig(file, dpi=110)


def _by_rating(axes: Axes, measured: Mapping[str, Measured]) -> None:
    for label, found in measured.items():
        points = []
        for low, high in pairwise(BANDS):
            rows = (found.rating >= low) & (found.rating < high)
            if rows.sum() >= FEWEST:
                points.append(((low + high) / 2, 100 * found.top(1, rows)))
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(x, y, marker="o", label=label, linestyle="--" if "history" in label else "-")
    axes.set(title="Move matched, by the mover's rating", xlabel="rating (lichess)", ylabel="top-1, %")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def _reliability(axes: Axes, found: Measured, name: str) -> None:
    confidence, accuracy, count = found.reliability()
    there = count > 0
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    axes.scatter(confidence[there], accuracy[there], s=20 + 400 * count[there] / count.max())
    axes.set(
        title=f"{name}: reliability of the likeliest move (ECE {found.calibration_error():.4f})",
        xlabel="probability given",
        ylabel="share played",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.grid(alpha=0.3)


def _leakage(axes: Axes, measured: Mapping[str, Measured]) -> None:
    for label, found in measured.items():
        values = np.sort(np.maximum(found.raw, 1e-8))
        axes.plot(values, 1 - np.arange(len(values)) / len(values), label=label)
    axes.set(
        title="Raw leakage: share of positions above",
        xlabel="probability on illegal moves",
        ylabel="share of positions",
        xscale="log",
        yscale="log",
    )
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def _surprise(axes: Axes, measured: Mapping[str, Measured]) -> None:
    bins = np.linspace(0, 8, 60)
    for label, found in measured.items():
        axes.hist(found.surprise, bins=bins.tolist(), histtype="step", density=True, label=label)
    axes.set(title="Surprise of the move played", xlabel="-ln probability, nats", ylabel="density", yscale="log")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
