"""Tables for a terminal: a diagnosis with the advice that follows from it, and a quantised network's judgement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from movemask.tasks.diagnosis import Diagnosis, Finding

if TYPE_CHECKING:
    from movemask.quantisation.comparison import Judgement, Limits
    from movemask.quantisation.run import Quantised


def diagnosis_table(diagnosis: Diagnosis) -> str:
    """The declared contract by kind of position, the ranked alternatives, and the advice."""
    lines: list[str] = []
    if diagnosis.unreadable:
        lines += ["", f"  as declared it cannot be read: {diagnosis.unreadable}"]
    if diagnosis.kinds:
        heads = f"{'positions':>9} {'raw mean':>9} {'raw max':>9} {'perplexity':>10} {'at random':>9}"
        lines += ["", f"  {'as declared':<12} {heads}"]
        for kind in diagnosis.kinds:
            own, random = (f"{p:.2f}" if p else "" for p in (kind.perplexity, kind.at_random))
            figures = f"{kind.raw_mean:>9.2g} {kind.raw_max:>9.2g} {own:>10} {random:>9}"
            lines.append(f"  {kind.name:<12} {kind.positions:>9} {figures}")
    lines += ["", f"  {'read otherwise':<40} {'positions':>9} {'z':>6} {'leakage':>8} {'moves':>8} {'result':>8}  fits"]
    lines += [_row(finding) for finding in diagnosis.findings]
    what = (
        "leakage: mean change of ln raw leakage; "
        if diagnosis.uses_leakage
        else "trained with the mask: leakage not used; "
    )
    lines += ["  z above 5 is clear. " + what + "moves, result: of ln probability of what happened", ""]
    lines += [f"  NO BETTER THAN CHANCE: {why}" for why in diagnosis.chance]
    if diagnosis.better:
        lines += [f"  CLEARLY BETTER: {finding.advice}" for finding in diagnosis.better[:3]]
    elif diagnosis.misread:
        lines.append("  READ WRONGLY, or untrained: none of the known mistakes explains it")
    else:
        lines.append("  no alternative is clearly better than what the contract says")
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    def number(value: float | None) -> str:
        return f"{value:+8.4f}" if value is not None else " " * 8

    figures = f"{number(finding.leakage)} {number(finding.moves)} {number(finding.result)}"
    verdict = "better, yet no better than chance" if finding.verdict == "chance" else finding.verdict
    if finding.impossible is not None:
        verdict = f"impossible: {finding.impossible[:70]}"
    return f"  {finding.name:<40} {finding.positions:>9} {finding.z:>6.1f} {figures}  {verdict}"


def quantisation_table(result: Quantised, limits: Limits) -> str:
    """What a quantised network loses and gains, beside the limits."""
    from movemask.quantisation.comparison import SEEN_LARGEST, SEEN_MEAN  # imported here because it imports onnx

    found, speed = result.judgement, result.speed
    rows = [("", "original", "integers", "limit"), *_rows(found, limits)]
    rows.append(("µs a position", f"{speed.before:.0f}", f"{speed.after:.0f}", f"{speed.ratio:.2f} x the speed"))
    if result.bare is not None:
        rows += [("from bare FENs, without history", "", "", ""), *_rows(result.bare, limits)]
    swept = result.swept
    rows += [
        (f"along the ratings, in {swept.positions} positions", "", "", ""),
        ("largest change of a probability", "", f"{swept.largest:.3f}", f"{SEEN_LARGEST:g}, past it seen"),
        ("mean change", "", f"{swept.mean:.4f}", f"{SEEN_MEAN:g}, past it seen"),
    ]
    known = f", {found.played:,} with the move played" if found.played else ", moves played are not known"
    floats = f"; in float: {', '.join(result.floats)}" if result.floats else ""
    lines = [f"{found.positions:,} positions{known}; calibrated on {result.calibrated:,} others"]
    lines.append(f"{len(result.integers)} layers in 8-bit integers{floats}")
    lines += [f"{row[0]:<34} {row[1]:>9} {row[2]:>9}  {row[3]}".rstrip() for row in rows]
    return "\n".join(lines)


def _rows(found: Judgement, limits: Limits) -> Iterator[tuple[str, str, str, str]]:
    from movemask.quantisation.comparison import CLEAR_LEAD  # imported here because it imports onnx

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
