"""A diagnosis as a table for a terminal, with the advice that follows from it."""

from __future__ import annotations

from movemask.tasks.diagnosis import Diagnosis, Finding


def diagnosis_table(diagnosis: Diagnosis) -> str:
    """The declared contract by kind of position, the ranked alternatives, and the advice."""
    lines: list[str] = []
    if diagnosis.unreadable:
        lines += ["", f"  as declared it cannot be read: {diagnosis.unreadable}"]
    if diagnosis.kinds:
        lines += ["", f"  {'as declared':<12} {'positions':>9} {'raw mean':>9} {'raw max':>9} {'perplexity':>10}"]
        for kind in diagnosis.kinds:
            perplexity = "" if kind.perplexity is None else f"{kind.perplexity:.2f}"
            lines.append(
                f"  {kind.name:<12} {kind.positions:>9} {kind.raw_mean:>9.2g} {kind.raw_max:>9.2g} {perplexity:>10}"
            )
    lines += ["", f"  {'read otherwise':<26} {'positions':>9} {'z':>6} {'leakage':>8} {'moves':>8} {'result':>8}  fits"]
    lines += [_row(finding) for finding in diagnosis.findings]
    what = (
        "leakage: mean change of ln raw leakage; "
        if diagnosis.uses_leakage
        else "trained with the mask: leakage not used; "
    )
    lines += ["  z above 5 is clear. " + what + "moves, result: of ln probability of what happened", ""]
    if diagnosis.better:
        lines += [f"  CLEARLY BETTER: {finding.advice}" for finding in diagnosis.better[:3]]
    else:
        lines.append("  no alternative is clearly better than what the contract says")
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    def number(value: float | None) -> str:
        return f"{value:+8.4f}" if value is not None else " " * 8

    figures = f"{number(finding.leakage)} {number(finding.moves)} {number(finding.result)}"
    verdict = finding.verdict if finding.impossible is None else f"impossible: {finding.impossible[:70]}"
    return f"  {finding.name:<26} {finding.positions:>9} {finding.z:>6.1f} {figures}  {verdict}"
