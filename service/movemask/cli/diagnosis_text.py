"""A diagnosis as a table for a terminal, with the advice that follows from it."""

from __future__ import annotations

from movemask.tasks.diagnosis import Diagnosis, Finding

_VERDICTS = {"chance": "better, yet no better than chance"}


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
    verdict = (
        _VERDICTS.get(finding.verdict, finding.verdict)
        if finding.impossible is None
        else f"impossible: {finding.impossible[:70]}"
    )
    return f"  {finding.name:<40} {finding.positions:>9} {finding.z:>6.1f} {figures}  {verdict}"
