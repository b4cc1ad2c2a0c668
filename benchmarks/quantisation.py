"""What quantising costs and gains: `python -m benchmarks.quantisation cards|steps NAME… --models-dir D`.

Writes parts of benchmarks/results/quantisation.md. `cards`: the cards of the models NAME-int8… that `movemask models
quantize` has written. `steps`: every layer of NAME as integers in several ways, which takes minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from movemask.network.model import Model
from movemask.network.onnx import OnnxSession
from movemask.network.registry import open_model
from movemask.numeric.ragged import Float
from movemask.quantisation import positions, run
from movemask.quantisation.comparison import BATCH, Comparison, batches_of, speed
from movemask.quantisation.network import LayeredNetwork, Moments, calibration_stats
from movemask.quantisation.run import FULL, REDUCED, weights_for
from movemask.quantisation.writing import Rounded, Writer, rounded

#: Positions that the steps are compared on.
STEPS_BY = 2048
PAGE = Path(__file__).parent / "results" / "quantisation.md"


def steps(model: Model, file: Path, known: positions.Sets) -> Iterator[list[str]]:
    """A row for each way: bits, the way, KL, flips, clear flips, largest change, speed."""
    judge = Comparison(model, known.search)
    batches = [model.feeds(batch) for batch in batches_of(model, known.calibration)]
    feeds = {name: array[:BATCH] for name, array in batches[0].items()}
    original = OnnxSession(file, 1)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "written.onnx"

        def row(bits: int, way: str) -> list[str]:
            session = OnnxSession(written, 1)
            found = judge.judged(session)
            fast = speed(original, session, feeds, [model.contract.outputs.logits])
            shares = f"{100 * found.flips:.1f} %", f"{100 * found.clear_flips:.2f} %"
            return [str(bits), way, f"{found.kl:.4f}", *shares, f"{found.largest:.2f}", f"{fast.ratio:.2f}"]

        for bits in (REDUCED, FULL):
            _plain(file, written, batches, bits)
            yield row(bits, "onnxruntime's static quantiser, convolutions and products")
            network = LayeredNetwork(file, model.contract.outputs.logits, batches[0])
            found = calibration_stats(network, batches)
            for way, rounding in (("planes exact, residual stream in float", _nearest), ("+ weights rounded", rounded)):
                _write(network, found, batches, bits, rounding, written)
                yield row(bits, way)


def _write(network: LayeredNetwork, found: Any, batches: Any, bits: int, rounding: Any, written: Path) -> None:
    roundings = {
        layer.name: rounding(
            layer.matrix(network.constants[layer.weight]), found.moments[layer.name], run.LARGEST[bits]
        )
        for layer in network.layers
    }
    Writer(network, found, roundings, batches[0]).write(network.layers, written)


def _nearest(weights: Float, moments: Moments, largest: int) -> Rounded:
    """Each weight rounded by itself, as quantisers do."""
    scales = np.abs(weights).max(axis=1) / largest
    scales = np.where(scales > 0, scales, 1.0)
    return Rounded(np.round(weights / scales[:, None]) * scales[:, None], scales, np.zeros(len(weights)))


def _plain(file: Path, written: Path, batches: list[dict[str, Any]], bits: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(written),
            _Reader(batches),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=bits == REDUCED,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
        )


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: list[dict[str, Any]]) -> None:
        self._parts = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._parts, None)


def card_row(name: str, card: Mapping[str, Any]) -> list[str]:
    """A row of what the command found: the card's figures."""
    found, fast = card["judged"], card["speed"]
    return [
        f"`{name}`",
        str(card["weight_bits"]),
        ", ".join(card["float_layers"]) or "none",
        f"{found['positions']:,}",
        f"{found['kl']:.4f}",
        f"{100 * found['flips']:.2f} %",
        f"{100 * found['clear_flips']:.2f} %",
        f"{found['largest']:.2f}",
        f"{100 * found['accuracy_before']:.2f} → {100 * found['accuracy_after']:.2f} %",
        f"{found['raw_before']:.4f} → {found['raw_after']:.4f}",
        f"{fast['ratio']:.2f}",
        "; ".join(card["exceeded"]) or "within",
    ]


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def put(part: str, text: str) -> None:
    """Replaces a part of the page, between its markers."""
    begin, end = f"<!-- {part} -->\n", f"\n<!-- /{part} -->"
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(before + begin + text + end + rest.split(end)[1])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="what quantising costs and gains")
    parser.add_argument("part", choices=["cards", "steps"])
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--models-dir", type=Path, required=True)
    parser.add_argument("--games", help="for the steps: the games that the cards are from")
    arguments = parser.parse_args()
    command = (
        f"`python -m benchmarks.quantisation {' '.join((arguments.part, *arguments.names))} --models-dir my-models"
    )
    measures = ["mean KL", "flips", "clear flips", "largest change"]
    if arguments.part == "cards":
        cards = []
        for name in arguments.names:
            for file in sorted(arguments.models_dir.glob(f"{name}-int8*.toml")):
                cards.append(card_row(file.stem, tomllib.loads(file.read_text())["card"]["quantised"]))
        head = ["network", "bits", "in float", "positions", *measures, "human moves", "raw leakage", "speed", "limits"]
        put("cards", f"{command}`. On this processor: {weights_for().reason}.\n\n{table(head, cards)}")
        return
    parts = [f"{command} --games {Path(arguments.games).name}`. On this processor: {weights_for().reason}."]
    for name in arguments.names:
        model = open_model(arguments.models_dir / f"{name}.toml", 1)
        known = positions.sets(model, [arguments.games])
        known = replace(known, search=known.search[:STEPS_BY])
        rows = list(steps(model, arguments.models_dir / f"{name}.onnx", known))
        parts += [f"### {name}", f"{len(known.search):,} positions.", table(["bits", "way", *measures, "speed"], rows)]
    put("steps", "\n\n".join(parts))


if __name__ == "__main__":
    main()
