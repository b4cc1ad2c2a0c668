"""The contract and card of a quantised network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from movemask.errors import ContractError
from movemask.quantisation.judgement import Limits
from movemask.quantisation.positions import Sets
from movemask.quantisation.processor import Weights
from movemask.quantisation.run import Quantised
from movemask.quantisation.timing import BATCH

_DIGITS = 4  # significant, of figures in the card


def contract_of(
    original: Path, digest: str, result: Quantised, known: Sets, weights: Weights, limits: Limits
) -> dict[str, Any]:
    """The original's contract with a card of the quantised network; the original's own card is `card.original`."""
    try:
        table = tomlkit.parse(original.read_text(encoding="utf-8")).unwrap()
    except (OSError, TOMLKitError) as error:
        raise ContractError(f"{original}: cannot be read: {error}") from None
    table.pop("network", None)
    card = table.pop("card", {})
    new: dict[str, Any] = {"source": f"{original.stem} as 8-bit integers, by movemask models quantize"}
    if "licence" in card:
        new["licence"] = card["licence"]
    new["quantised"] = _figures(result, known, weights, limits) | {"from": original.stem, "from_digest": digest}
    if card:
        new["original"] = card
    return {**table, "card": new}


def _figures(result: Quantised, known: Sets, weights: Weights, limits: Limits) -> dict[str, Any]:
    judgement = result.judgement
    measured = {field.name: getattr(judgement, field.name) for field in fields(judgement)}
    return {
        "weights": weights.reason,
        "weight_bits": weights.bits,
        "layers": list(result.integers),
        "float_layers": list(result.floats),
        "positions_from": known.source,
        "calibrated_on": result.calibrated,
        "judged": _rounded(measured),
        "limits": {field.name: getattr(limits, field.name) for field in fields(limits)},
        "exceeded": list(result.excess(limits)),
        "speed": {
            **_rounded({"microseconds_before": result.speed.before, "microseconds_after": result.speed.after}),
            "ratio": round(result.speed.ratio, 2),  # as the command prints it
            "what": f"a position, batch of {BATCH}, one thread, both networks in turn",
        },
    }


def _rounded(figures: Mapping[str, float | None]) -> dict[str, float]:
    """The figures that there are."""
    return {
        name: value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")
        for name, value in figures.items()
        if value is not None
    }
