"""What `movemask audit` says while it runs and when it is done."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from movemask.audit.run import PartDone
    from movemask.audit.summary import ModelSummary, Threshold


@contextmanager
def progress_on(how: str, total: int | None) -> Iterator[Callable[[PartDone], None]]:
    """Progress on stderr: bytes of the files on disk whose positions are done, and positions per second. A bar is shown
    only on a terminal."""
    from tqdm import tqdm

    with tqdm(
        total=total, unit="B", unit_scale=True, disable=None if how == "bar" else True, smoothing=0.1, file=sys.stderr
    ) as bar:
        started = time.monotonic()
        positions = fresh = size = 0

        def done(part: PartDone) -> None:
            nonlocal positions, fresh, size
            positions += part.positions
            fresh += part.positions if part.fresh else 0
            size += part.size
            rate = fresh / max(time.monotonic() - started, 1e-9)
            if how == "json":
                line: dict[str, Any] = {"file": part.key.file, "chunk": part.key.number, "fresh": part.fresh}
                line |= {"positions": positions, "bytes": size, "total_bytes": total, "positions_per_second": rate}
                click.echo(json.dumps(line), err=True)
            bar.update(part.size if total is None else min(part.size, total - bar.n))
            bar.set_postfix_str(f"{positions:,} positions, {rate:,.0f}/s")

        yield done
        if total is not None:
            bar.update(total - bar.n)  # bytes after the last position, such as a checksum


def named(files: Sequence[str]) -> str:
    """The files' names; of many, the first."""
    return ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")


def show_skipped(reasons: dict[str, int], examples: list[str]) -> None:
    """What was left out and why, on stderr."""
    for reason, times in reasons.items():
        click.echo(f"left out: {reason}: {times:,}", err=True)
    for example in examples[:5]:
        click.echo(f"  {example}", err=True)


def exceeded(threshold: Threshold, model: ModelSummary) -> str:
    """Why a threshold counts as exceeded."""
    cell, found = model.of(threshold.kind), threshold.found(model)
    why = (
        f"could not be measured at {cell.unmeasured:,} of {cell.positions:,} positions"
        if found is None
        else f"is {found:.4g}, above {threshold.value:g}"
    )
    return f"{model.name}: {threshold.kind}.{threshold.statistic} {why}"


def figures(model: ModelSummary) -> str:
    """The main figures of a network in one line."""
    raw, multiplied = model.of("raw"), model.of("multiplied")
    parts = [f"{model.name}: {model.positions:,} positions"]
    for name, cell in (("raw", raw), ("multiplied", multiplied)):
        if cell.count:
            parts.append(f"{name} mean {cell.mean:.3g}, p99 {cell.quantiles['p99']:.3g}, max {cell.max:.3g}")
    if model.trained_with_mask:
        parts.append("trained with the mask: raw means nothing")
    return "; ".join(parts)
