"""A quantised network's judgement as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from movemask.quantisation.comparison import CLEAR_LEAD, Judgement, Limits
from movemask.quantisation.run import Quantised


def quantisation_table(result: Quantised, limits: Limits) -> str:
    """What is lost and gained, beside the limits."""
    found, speed = result.judgement, result.speed
    rows = [("", "original", "integers", "limit"), *_rows(found, limits)]
    rows.append(("µs a position", f"{speed.before:.0f}", f"{speed.after:.0f}", f"{speed.ratio:.2f} x the speed"))
    if result.bare is not None:
        rows += [("from bare FENs, without history", "", "", ""), *_rows(result.bare, limits)]
    known = f", {found.played:,} with the move played" if found.played else ", moves played are not known"
    floats = f"; in float: {', '.join(result.floats)}" if result.floats else ""
    lines = [f"{found.positions:,} positions{known}; calibrated on {result.calibrated:,} others"]
    lines.append(f"{len(result.integers)} layers in 8-bit integers{floats}")
    lines += [f"{row[0]:<34} {row[1]:>9} {row[2]:>9}  {row[3]}".rstrip() for row in rows]
    return "\n".join(lines)


def _rows(found: Judgement, limits: Limits) -> Iterator[tuple[str, str, str, str]]:
    yield "mean KL from the original, nats", "", f"{found.kl:.4f}", f"{limits.kl:g}"
    yield "top-move flips", "", _share(found.flips), _share(limits.flips)
    clear = f"  where the first move led by {CLEAR_LEAD:g}"
    yield clear, "", _share(found.clear_flips), _share(limits.clear_flips)
    yield "largest change of a probability", "", f"{found.largest:.3f}", ""
    if found.accuracy_before is not None and found.accuracy_after is not None:
        before, after = _share(found.accuracy_before), _share(found.accuracy_after)
        error = f" (standard error {100 * (found.accuracy_error or 0):.2f})"
        yield "human-move accuracy", before, after, f"-{100 * limits.accuracy:g} points{error}"
    yield "raw leakage, mean", f"{found.raw_before:.3g}", f"{found.raw_after:.3g}", ""
    if found.value is not None:
        yield "expected score, mean change", "", f"{found.value:.4f}", ""


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"
