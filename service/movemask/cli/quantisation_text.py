"""A quantised network's judgement as a table for a terminal."""

from __future__ import annotations

from movemask.quantisation.judgement import CLEAR_LEAD, Limits
from movemask.quantisation.run import Quantised


def quantisation_table(result: Quantised, limits: Limits) -> str:
    """What is lost and gained, beside the limits."""
    found, speed = result.judgement, result.speed
    rows = [
        ("", "original", "integers", "limit"),
        ("mean KL from the original, nats", "", f"{found.kl:.4f}", f"{limits.kl:g}"),
        ("top-move flips", "", _share(found.flips), _share(limits.flips)),
        (
            f"  where the first move led by {CLEAR_LEAD:g}",
            "",
            _share(found.clear_flips),
            _share(limits.clear_flips),
        ),
        ("largest change of a probability", "", f"{found.largest:.3f}", ""),
    ]
    if found.accuracy_before is not None and found.accuracy_after is not None:
        before, after = _share(found.accuracy_before), _share(found.accuracy_after)
        error = f" (standard error {100 * (found.accuracy_error or 0):.2f})"
        rows.append(("human-move accuracy", before, after, f"-{100 * limits.accuracy:g} points{error}"))
    rows.append(("raw leakage, mean", f"{found.raw_before:.3g}", f"{found.raw_after:.3g}", ""))
    if found.value is not None:
        rows.append(("expected score, mean change", "", f"{found.value:.4f}", ""))
    rows.append(("µs a position", f"{speed.before:.0f}", f"{speed.after:.0f}", f"{speed.ratio:.2f} x the speed"))
    known = f", {found.played:,} with the move played" if found.played else ", moves played are not known"
    floats = f"; in float: {', '.join(result.floats)}" if result.floats else ""
    lines = [f"{found.positions:,} positions{known}; calibrated on {result.calibrated:,} others"]
    lines.append(f"{len(result.integers)} layers in 8-bit integers{floats}")
    lines += [f"{row[0]:<34} {row[1]:>9} {row[2]:>9}  {row[3]}".rstrip() for row in rows]
    return "\n".join(lines)


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"
