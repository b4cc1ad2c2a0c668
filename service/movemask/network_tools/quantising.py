"""`movemask models quantize`: makes an 8-bit integer network from a float network, judges it and writes its card.

`quantise` calls onnxruntime's static quantiser. Dynamic integers (`DynamicQuantizeLinear`) cannot be served: their
scales come from the whole batch, so an answer would depend on the batch's other positions.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tomlkit
from google.protobuf.message import DecodeError
from onnx import helper
from onnxruntime.quantization import QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import movemask
from movemask.errors import ContractError
from movemask.games.sweep import curves
from movemask.network.model import Array, Model
from movemask.network.onnx import OnnxSession
from movemask.network_tools.diagnosis import Played, commonest
from movemask.network_tools.installation import CONTRACT, carried_contract
from movemask.network_tools.judging import (
    BATCH,
    FIGURES,
    JUDGED,
    Apart,
    Judgement,
    Sets,
    Speed,
    apart,
    batches_of,
    judged,
)

#: AVX2's `vpmaddubsw` adds two products in 16 bits, which saturate if weights use all 8 bits. Without VNNI, onnxruntime
#: therefore advises 7 bits (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). VNNI and
#: Arm's dot product add in 32 bits.
CPUINFO = Path("/proc/cpuinfo")
FULL, REDUCED = 8, 7  # bits of a weight
_SUMS = {"avx512_vnni": "VNNI", "avx_vnni": "VNNI", "asimddp": "Arm's dot product"}


def weights_for(bits: int | None = None, cpuinfo: Path = CPUINFO) -> tuple[int, str]:
    """The bits of a weight for this processor, or the given number, and the reason in words."""
    words = cpuinfo.read_text(encoding="utf-8", errors="replace").split() if cpuinfo.is_file() else []
    flag = next((flag for flag in _SUMS if flag in words), None)
    reason = f"{_SUMS[flag]} ({flag})" if flag else f"no VNNI in {cpuinfo}, and products of 8 bits saturate without it"
    as_asked = ", as asked" if bits else ""
    bits = bits or (FULL if flag else REDUCED)
    return bits, f"{bits} bits{as_asked}: {reason}"


@dataclass(frozen=True, slots=True)
class Quantised:
    """The network's bytes, its layers, and its judgement on positions outside the calibration.

    swept : the difference along the ratings, for a network that takes them
    """

    onnx: bytes
    integers: list[str]
    floats: list[str]
    judgements: Mapping[str, Judgement]
    swept: Apart | None
    speed: Speed

    def excess(self) -> list[str]:
        """Why it is not worth keeping: limits exceeded beyond chance, or no gain in speed."""
        limits = [figure for figure, times, _ in self._exceeded() if not times > 1]
        return limits if self.speed.ratio > 1 else [*limits, f"no faster: {self.speed.ratio:.2f} times the speed"]

    def unsure(self, known: Sets) -> list[str]:
        """Limits exceeded within chance, and the number of games that would decide."""
        limits = []
        for figure, times, positions in self._exceeded():
            if times > 1:
                games = float(f"{times * positions * known.games / len(known.judged):.2g}")
                most = f", but no more than {JUDGED:,} positions are judged" if times * positions > JUDGED else ""
                words = f"chance could explain that; about {games:,.0f} games or lines would tell{most}"
                limits.append(f"{figure}: {words}")
        return limits

    def _exceeded(self) -> Iterator[tuple[str, float, int]]:
        for way, judgement in self.judgements.items():
            for figure, times in judgement.exceeded():
                yield f"{way}{figure}", times, judgement.positions


def quantised(
    model: Model, file: Path, known: Sets, bits: int, progress: Callable[[str], None], last: int | None = None
) -> Quantised:
    """The network of `file` in integers, and its judgement against `model`, which runs it in floats.

    Raises ContractError for a network that cannot be quantised, or another ModelError.

    Parameters
    ----------
    bits : of a weight
    last : number of the last layers that become integers; None for all
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
    """The positions. For a network with history, every second position is a bare FEN."""
    bare = model.contract.takes_history
    return [played.bare if bare and place % 2 else played for place, played in enumerate(known)]


SWEPT = 100  # commonest positions, and as many from later in games


def _swept(model: Model, other: Model, known: Sequence[Played]) -> Apart:
    """How far two networks are apart along the ratings, in common positions and in positions from later in games."""
    common = commonest(SWEPT)
    openings = {position.fen for position in common}
    later = [played for played in known[: 3 * SWEPT] if played.position.fen not in openings][:SWEPT]
    positions = [*common, *(played.position for played in _both_ways(model, later))]
    return apart(curves(model, positions), curves(other, positions))


def contract_of(original: Path, digest: str, result: Quantised, known: Sets, **more: object) -> dict[str, Any]:
    """The original's contract with a card of the judgement and `more`. The original's card is in `card.original`."""
    table = tomlkit.parse(original.read_text(encoding="utf-8")).unwrap()
    table.pop("network", None)
    card = table.pop("card", {})
    figures = {"judged_bare" if way else "judged": asdict(judgement) for way, judgement in result.judgements.items()}
    swept = {"swept": asdict(result.swept)} if result.swept else {}
    quantised = {
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
    new = {"source": f"{original.stem} as 8-bit integers, by movemask models quantize", "quantised": quantised}
    kept = {"original": card, **({"licence": card["licence"]} if "licence" in card else {})} if card else {}
    return {**table, "card": {**new, **kept}}


def _rounded(figures: Any) -> Any:
    if isinstance(figures, Mapping):
        return {name: _rounded(value) for name, value in figures.items()}
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def asked_of(contract: Path, model: Model, files: Sequence[str], *options: object) -> str:
    """A digest of everything that a network is made from.

    Unique if a source can be read only once, such as standard input.
    """
    again = all(map(os.path.isfile, files))
    stats = [(os.path.abspath(file), os.stat(file)) for file in files] if again else []
    sources = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats] or uuid.uuid4().hex * (not again)
    versions = movemask.__version__, onnxruntime.__version__
    made_from = repr((*versions, model.digest, contract.read_bytes(), sources, options))
    return "sha256:" + hashlib.sha256(made_from.encode()).hexdigest()


def keep_refused(file: Path, network: bytes, table: Mapping[str, Any]) -> None:
    """Keeps a refused network with its contract, for `refused`, if the folder can be written."""
    model = onnx.load_model_from_string(network)
    onnx.helper.set_model_props(model, {CONTRACT: tomlkit.dumps(table)})
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(model.SerializeToString())


def refused(file: Path, asked: str) -> tuple[bytes, dict[str, Any]] | None:
    """The refused network and its contract, if it was made from the same sources; otherwise None."""
    with suppress(OSError, DecodeError):
        model = onnx.load(str(file))
        table = carried_contract(model)
        if table is not None and table["card"]["quantised"]["asked"] == asked:
            del model.metadata_props[:]
            return model.SerializeToString(), table
    return None


_LEAST = 1024  # weights of a layer; in a smaller layer, converting the inputs costs more than it saves
#: Scale that keeps whole numbers from 0 to 255 exact. Scaled by a large maximum, like lc0's clock, steps would be 0.4.
_EXACT: dict[str, Any] = {"scale": np.array(1, np.float32), "zero_point": np.array(0, np.uint8)}


def quantise(
    file: Path,
    target: Path,
    outputs: Sequence[str],
    batches: Sequence[Mapping[str, Array]],
    reduced: bool,
    last: int | None,
) -> tuple[list[str], list[str]]:
    """Writes the network of `file` with integers to `target`. Returns the names of integer layers and of float layers.

    Layers that all `outputs` depend on (logits and value) become integers. A head stays in float: it takes little of
    the time, and rounding shows most there. Raises ContractError for a network that has integers already, or has no
    layer to convert.

    Parameters
    ----------
    batches : inputs that show the ranges of the activations
    reduced : 7 bits for weights
    last : number of the last layers to convert; an early rounding error is carried through all later layers
    """
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        try:
            quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
        except Exception as error:  # onnxruntime's and onnx's errors share no base class
            raise ContractError(f"{file.name}: cannot be prepared: {str(error).splitlines()[0][:300]}") from None
        model = onnx.load(str(prepared))
        graph = model.graph
        already = sorted({node.op_type for node in graph.node if "Quant" in node.op_type or "Integer" in node.op_type})
        if already:
            raise ContractError(f"{file.name}: is already quantised: it has {', '.join(already)}")
        for number, node in enumerate(graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
        layers = _layers(graph)
        chosen = _trunk(graph, layers, outputs)[-(last or 0) :]
        if not chosen:
            raise ContractError(f"{file.name}: has no large layer with constant float weights before its heads")
        relus = [node.name for node in graph.node if node.op_type == "Relu"]  # fused with the preceding convolution
        own = _with_own_inputs(graph, chosen)
        exact = {
            own[name]: [_EXACT] for name in own if name in batches[0] and _whole([batch[name] for batch in batches])
        }
        onnx.save(model, str(prepared))
        quantize_static(
            str(prepared),
            str(target),
            SimpleNamespace(get_next=partial(next, iter(batches), None)),
            per_channel=True,
            reduce_range=reduced,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            op_types_to_quantize=["Conv", "MatMul", "Relu"],
            nodes_to_quantize=[*chosen, *relus],
            extra_options={
                "OpTypesToExcludeOutputQuantization": ["MatMul"],  # its kernel writes floats just as fast
                "TensorQuantOverrides": exact,
            },
        )
    return chosen, [name for name in layers if name not in chosen]


def _layers(graph: onnx.GraphProto) -> dict[str, str]:
    """By name, the outputs of convolutions and matrix products with at least _LEAST constant float weights.

    Products of one vector per position, such as squeeze-and-excitation's, are `Gemm` here and too small to count.
    """
    constants = {tensor.name for tensor in graph.initializer}
    ranks = {
        tensor.name: len(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= _LEAST
    }
    return {
        node.name: node.output[0]
        for node in graph.node
        if node.op_type in ("Conv", "MatMul") and node.input[0] not in constants and node.input[1] in ranks
        if node.op_type == "Conv" or ranks[node.input[1]] == 2
    }


def _trunk(graph: onnx.GraphProto, layers: Mapping[str, str], outputs: Sequence[str]) -> list[str]:
    """The layers that all outputs depend on. With one output, or none shared: all its layers except the last."""
    makers = {name: node for node in graph.node for name in node.output}

    def behind(output: str) -> set[str]:
        wanted, waiting = set[str](), [output]
        while waiting:
            name = waiting.pop()
            if name in makers and name not in wanted:
                wanted.add(name)
                waiting += makers[name].input
        return wanted

    first, *others = (behind(output) for output in outputs)
    shared = [name for name, tensor in layers.items() if all(tensor in needed for needed in (first, *others))]
    return shared if others and shared else [name for name, tensor in layers.items() if tensor in first][:-1]


def _with_own_inputs(graph: onnx.GraphProto, layers: Collection[str]) -> dict[str, str]:
    """Puts an `Identity` before the inputs of these layers. Returns its output by its input.

    The quantiser rounds a tensor for all its readers, so a residual stream would lose precision in every block.
    onnxruntime removes the node.
    """
    own: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        if node.name in layers:
            name = node.input[0]
            if name not in own:
                own[name] = f"{name}/own"
                nodes.append(helper.make_node("Identity", [name], [own[name]], name=own[name]))
            node.input[0] = own[name]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return own


def _whole(batches: Sequence[Array]) -> bool:
    return all((values == np.clip(np.round(values), 0, 255)).all() for values in batches)
