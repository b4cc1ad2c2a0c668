"""A network → the same as 8-bit integers, judged, with its card: the story of `movemask models quantize`."""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import tomlkit
from google.protobuf.message import DecodeError

import movemask
from movemask.games.sweep import curves
from movemask.models.diagnosis import commonest
from movemask.models.held_out import JUDGED, Played, Sets
from movemask.models.installation import CONTRACT, carried_contract
from movemask.models.integers import quantise
from movemask.models.judging import BATCH, FIGURES, Apart, Judgement, Speed, apart, batches_of, judged
from movemask.network.model import Model
from movemask.network.onnx import OnnxSession

#: AVX2's `vpmaddubsw` adds two products in 16 bits, which saturate where weights use all 8 bits; so onnxruntime advises
#: 7 bits without VNNI (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). Arm's dot
#: product adds in 32 bits, as VNNI does.
CPUINFO = Path("/proc/cpuinfo")
FULL, REDUCED = 8, 7  # bits of a weight
_EXACT = {"avx512_vnni": "VNNI", "avx_vnni": "VNNI", "asimddp": "Arm's dot product"}


def weights_for(bits: int | None = None, cpuinfo: Path = CPUINFO) -> tuple[int, str]:
    """The bits of weights for this processor, or as asked, and why."""
    words = cpuinfo.read_text(encoding="utf-8", errors="replace").split() if cpuinfo.is_file() else []
    flag = next((flag for flag in _EXACT if flag in words), None)
    found = f"{_EXACT[flag]} ({flag})" if flag else f"no VNNI in {cpuinfo}, and products of 8 bits saturate without it"
    asked = ", as asked" if bits else ""
    bits = bits or (FULL if flag else REDUCED)
    return bits, f"{bits} bits{asked}: {found}"


@dataclass(frozen=True, slots=True)
class Quantised:
    """The network's bytes, its layers, and what was found on positions that it was not calibrated on.

    `swept` is along the ratings, for a network that takes them.
    """

    onnx: bytes
    integers: list[str]
    floats: list[str]
    judgements: Mapping[str, Judgement]
    swept: Apart | None
    speed: Speed

    def excess(self) -> list[str]:
        """Why it is not worth keeping: the limits that are exceeded by more than chance explains, or no gain."""
        found = [one for one, times, _ in self._exceeded() if not times > 1]
        return found if self.speed.ratio > 1 else [*found, f"no faster: {self.speed.ratio:.2f} times the speed"]

    def unsure(self, known: Sets) -> list[str]:
        """The limits that are exceeded as chance could explain, and how many games would tell."""
        found = []
        for one, times, positions in self._exceeded():
            if times > 1:
                games = float(f"{times * positions * known.games / len(known.judged):.2g}")
                most = f", but no more than {JUDGED:,} positions are judged" if times * positions > JUDGED else ""
                found.append(f"{one}: chance could explain that; about {games:,.0f} games or lines would tell{most}")
        return found

    def _exceeded(self) -> Iterator[tuple[str, float, int]]:
        for way, judgement in self.judgements.items():
            for one, times in judgement.exceeded():
                yield f"{way}{one}", times, judgement.positions


def quantised(
    model: Model, file: Path, known: Sets, bits: int, progress: Callable[[str], None], last: int | None = None
) -> Quantised:
    """The network of `file`, which `model` runs, as integers with weights of so many bits, and its judgement.

    `last` leaves all but so many of the layers in float. Raises ContractError for a network that cannot be quantised,
    or another ModelError.
    """
    value = model.contract.outputs.value
    outputs = [model.contract.outputs.logits] + ([value.name] if value else [])
    original = OnnxSession(file, 1)
    batches = [model.feeds(batch) for batch in batches_of(model, _both_ways(model, known.calibration))]
    if original.one_by_one:
        rows = [(batch, row) for batch in batches for row in range(len(batch[model.contract.inputs.planes]))]
        batches = [{name: values[row : row + 1] for name, values in batch.items()} for batch, row in rows]
    progress(f"calibrating on {len(known.calibration)} positions")
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "quantised.onnx"
        integers, floats = quantise(file, written, outputs, batches, reduced=bits == REDUCED, last=last)
        session, content = OnnxSession(written, 1), written.read_bytes()
    other = replace(model, session=session)
    judgements = judged(model, other, known.judged, progress)
    swept = None
    if model.contract.takes_elo:
        progress("comparing the moves along the ratings")
        swept = _swept(model, other, known.judged)
    feeds = model.feeds(next(batches_of(model, known.judged[:BATCH])))
    return Quantised(content, integers, floats, judgements, swept, Speed.of(original, session, feeds, outputs))


def _both_ways(model: Model, known: Sequence[Played]) -> list[Played]:
    """The positions, of which a network with history gets every second one as a bare FEN."""
    return [one.bare if place % 2 and model.contract.takes_history else one for place, one in enumerate(known)]


SWEPT = 100  # of the commonest positions, and as many from later in games


def _swept(model: Model, other: Model, known: Sequence[Played]) -> Apart:
    """How far the two are apart along the ratings, in the commonest positions and in as many others."""
    common = commonest(SWEPT)
    openings = {position.fen for position in common}
    later = [one for one in known[: 3 * SWEPT] if one.position.fen not in openings][:SWEPT]
    positions = [*common, *(one.position for one in _both_ways(model, later))]
    return apart(curves(model, positions), curves(other, positions))


def contract_of(original: Path, digest: str, result: Quantised, known: Sets, **more: object) -> dict[str, Any]:
    """The original's contract with a card of what was found, and `more`; the original's own card is `card.original`."""
    table = tomlkit.parse(original.read_text(encoding="utf-8")).unwrap()
    table.pop("network", None)
    card = table.pop("card", {})
    figures = {"judged_bare" if way else "judged": asdict(one) for way, one in result.judgements.items()}
    swept = {"swept": asdict(result.swept)} if result.swept else {}
    found = {
        "from": original.stem,
        "from_digest": digest,
        **more,
        "layers": result.integers,
        "float_layers": result.floats,
        "positions_from": known.source,
        "calibrated_on": len(known.calibration),
        "limits": {key: limit for key, (_, _, limit) in FIGURES.items() if limit is not None},
        "exceeded": result.excess(),
        "unsure": result.unsure(known),
        "seen": result.swept is not None and result.swept.seen,
        **_rounded({**figures, **swept, "speed": asdict(result.speed)}),
        "speed_what": f"microseconds a position, batch of {BATCH}, one thread, both networks in turn",
    }
    new = {"source": f"{original.stem} as 8-bit integers, by movemask models quantize", "quantised": found}
    kept = {"original": card, **({"licence": card["licence"]} if "licence" in card else {})} if card else {}
    return {**table, "card": {**new, **kept}}


def _rounded(figures: Any) -> Any:
    if isinstance(figures, Mapping):
        return {name: _rounded(value) for name, value in figures.items()}
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def asked_of(contract: Path, model: Model, files: Sequence[str], *options: object) -> str:
    """What a network is made from, in short; another each time for what may be read once only, as standard input."""
    again = all(map(os.path.isfile, files))
    stats = [(os.path.abspath(file), os.stat(file)) for file in files] if again else []
    sources = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats] or uuid.uuid4().hex * (not again)
    asked = repr((movemask.__version__, onnxruntime.__version__, model.digest, contract.read_bytes(), sources, options))
    return "sha256:" + hashlib.sha256(asked.encode()).hexdigest()


def keep_refused(file: Path, network: bytes, table: Mapping[str, Any]) -> None:
    """Keeps a refused network with its contract for `refused`, if the folder can be written."""
    model = onnx.load_model_from_string(network)
    onnx.helper.set_model_props(model, {CONTRACT: tomlkit.dumps(table)})
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(model.SerializeToString())


def refused(file: Path, asked: str) -> tuple[bytes, dict[str, Any]] | None:
    """The network that was refused and its contract, if the same was asked; otherwise None."""
    with suppress(OSError, DecodeError):
        model = onnx.load(str(file))
        table = carried_contract(model)
        if table is not None and table["card"]["quantised"]["asked"] == asked:
            del model.metadata_props[:]
            return model.SerializeToString(), table
    return None
