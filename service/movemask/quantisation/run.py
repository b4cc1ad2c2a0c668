"""A network → the same as 8-bit integers, judged, with its card: the story of `movemask models quantize`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from movemask.network.model import Model
from movemask.network.onnx import OnnxSession
from movemask.quantisation.comparison import (
    BATCH,
    RATINGS,
    SWEPT,
    Apart,
    Comparison,
    Judgement,
    Limits,
    Progress,
    Speed,
    apart,
    batches_of,
    commonest,
    curves,
    selected,
    speed,
)
from movemask.quantisation.network import LayeredNetwork, calibration_stats
from movemask.quantisation.positions import RANKING, Known, Sets
from movemask.quantisation.writing import Writer, rounded

#: AVX2's `vpmaddubsw` adds two products in 16 bits, which saturate where weights use all 8 bits; so onnxruntime advises
#: 7 bits without VNNI (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). Arm's dot
#: product adds in 32 bits, as VNNI does.
CPUINFO = Path("/proc/cpuinfo")
FULL, REDUCED = 8, 7  # bits of a weight
_EXACT = {"avx512_vnni": "VNNI", "avx_vnni": "VNNI", "asimddp": "Arm's dot product"}


@dataclass(frozen=True, slots=True)
class Weights:
    """The bits of weights, 7 or 8, and why."""

    bits: int
    reason: str


def weights_for(bits: int | None = None, cpuinfo: Path = CPUINFO) -> Weights:
    """The weights for this processor, or of so many bits."""
    exact, found = _exact(cpuinfo)
    consequence = "" if exact else ", and signed products of 8 bits saturate without it"
    if bits is None:
        bits = FULL if exact else REDUCED
        return Weights(bits, f"{bits} bits: {found}{consequence}")
    return Weights(bits, f"{bits} bits, as asked: {found}{consequence if bits == FULL else ''}")


def _exact(cpuinfo: Path) -> tuple[bool, str]:
    """Whether products of eight bits are added without saturating, and what the kernel says of the processor."""
    try:
        words = cpuinfo.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False, f"{cpuinfo} cannot be read, so VNNI is not known of"
    for flag, name in _EXACT.items():
        if flag in words:
            return True, f"this processor has {name} ({flag})"
    return False, "this processor has no VNNI"


#: Largest steps of a weight up and down, by bits.
LARGEST = {FULL: 127, REDUCED: 64}


@dataclass(frozen=True, slots=True)
class Quantised:
    """The network's bytes, and what was found: on positions it was neither calibrated on nor chosen by.

    A network with history is judged twice: with the games that led to the positions, and from bare FENs. `swept` is
    along the ratings.
    """

    onnx: bytes
    judgement: Judgement
    bare: Judgement | None
    swept: Apart
    speed: Speed
    integers: tuple[str, ...]
    floats: tuple[str, ...]
    calibrated: int

    def excess(self, limits: Limits) -> tuple[str, ...]:
        """Why it is not worth keeping: the limits that are exceeded, or no gain."""
        bare = () if self.bare is None else self.bare.excess(limits)
        found = (*self.judgement.excess(limits), *(f"from bare FENs: {one}" for one in bare))
        return found if self.speed.ratio > 1 else (*found, f"no faster: {self.speed.ratio:.2f} times the speed")


def quantised(
    model: Model,
    file: Path,
    known: Sets,
    weights: Weights,
    limits: Limits,
    progress: Progress,
    last: int | None = None,
) -> Quantised:
    """The network of `file`, which `model` runs, with as many layers in integers as the limits allow.

    `last` leaves all but so many in float: what is rounded early is carried through all that follows.
    Raises ContractError for a network that cannot be quantised, or another ModelError.
    """
    outputs = model.contract.outputs
    batches = [model.feeds(batch) for batch in batches_of(model, _both_ways(model, known.calibration))]
    network = LayeredNetwork(file, outputs.logits, batches[0])
    network.layers = layers = network.layers[-last:] if last else network.layers
    progress(f"calibrating {len(layers)} layers on {len(known.calibration)} positions")
    stats = calibration_stats(network, batches)
    roundings = {}
    for layer in layers:
        progress(f"rounding {layer.name}")
        matrix = layer.matrix(network.constants[layer.weight])
        roundings[layer.name] = rounded(matrix, stats.moments[layer.name], LARGEST[weights.bits])
    writer = Writer(network, stats, roundings, batches[0])
    search = _both_ways(model, known.search)
    comparison, ranking = Comparison(model, search), Comparison(model, search[:RANKING])
    integers, floats = selected(layers, network.multiplications, writer, comparison, ranking, limits, progress)
    progress(f"judging on {len(known.judged)} other positions")
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "quantised.onnx"
        writer.write(integers, written)
        session = OnnxSession(written, 1)
        judgement = Comparison(model, known.judged).judged(session)
        bare = None
        if model.contract.takes_history:
            bare = Comparison(model, [one.bare for one in known.judged]).judged(session)
        swept = _swept(model, replace(model, session=session), known.judged)
        names = [outputs.logits] + ([outputs.value.name] if outputs.value else [])
        (batch,) = batches_of(model, known.judged[:BATCH])
        fast = speed(OnnxSession(file, 1), session, model.feeds(batch), names)
        content = written.read_bytes()
    return Quantised(
        content,
        judgement,
        bare,
        swept,
        fast,
        tuple(layer.name for layer in integers),
        tuple(layer.name for layer in floats),
        len(known.calibration),
    )


def _both_ways(model: Model, known: Sequence[Known]) -> list[Known]:
    """The positions, of which a network with history gets every second one as a bare FEN."""
    return [one.bare if place % 2 and model.contract.takes_history else one for place, one in enumerate(known)]


def _swept(model: Model, other: Model, known: Sequence[Known]) -> Apart:
    """How far the two are apart along the ratings, in the commonest positions and in as many others."""
    common = commonest(SWEPT)
    openings = {position.fen for position in common}
    later = [one.position for one in _both_ways(model, known) if one.position.fen not in openings][:SWEPT]
    return apart(*(curves(one, [*common, *later]) for one in (model, other)))


_DIGITS = 4  # significant, of figures in the card


def contract_of(
    original: Path, digest: str, result: Quantised, known: Sets, weights: Weights, limits: Limits
) -> dict[str, Any]:
    """The original's contract with a card of the quantised network; the original's own card is `card.original`."""
    table = tomlkit.parse(original.read_text(encoding="utf-8")).unwrap()
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
    judged = {"judged": result.judgement} | ({} if result.bare is None else {"judged_bare": result.bare})
    return {
        "weights": weights.reason,
        "weight_bits": weights.bits,
        "layers": list(result.integers),
        "float_layers": list(result.floats),
        "positions_from": known.source,
        "calibrated_on": result.calibrated,
        **{name: _rounded(asdict(one)) for name, one in judged.items()},
        "limits": asdict(limits),
        "exceeded": list(result.excess(limits)),
        "swept": {**_rounded(asdict(result.swept)), "ratings": len(RATINGS)},
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
