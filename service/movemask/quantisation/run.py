"""A network → the same as 8-bit integers, judged: the story of `movemask models quantize`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from movemask.network.model import Array, Model
from movemask.network.onnx import OnnxSession
from movemask.quantisation.equalisation import equalise
from movemask.quantisation.judgement import Judge, Judgement, Limits
from movemask.quantisation.network import Network
from movemask.quantisation.observation import seen
from movemask.quantisation.positions import RANKING, Known, Sets
from movemask.quantisation.processor import FULL, REDUCED, Weights
from movemask.quantisation.rounding import rounded
from movemask.quantisation.search import Choice, Progress, chosen
from movemask.quantisation.timing import BATCH, Speed, speed
from movemask.quantisation.writing import Writer

#: Largest steps of a weight up and down, by bits.
LARGEST = {FULL: 127, REDUCED: 64}
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Quantised:
    """The network's bytes, and what was found: on positions it was neither calibrated on nor chosen by."""

    onnx: bytes
    judgement: Judgement
    speed: Speed
    integers: tuple[str, ...]
    floats: tuple[str, ...]
    calibrated: int

    def excess(self, limits: Limits) -> tuple[str, ...]:
        """Why it is not worth keeping: the limits that are exceeded, or no gain."""
        found = self.judgement.excess(limits)
        return found if self.speed.ratio > 1 else (*found, f"no faster: {self.speed.ratio:.2f} times the speed")


def quantised(
    model: Model, file: Path, known: Sets, weights: Weights, limits: Limits | None, progress: Progress
) -> Quantised:
    """The network of `file`, which `model` runs, with as many layers in integers as the limits allow.

    Without `limits` every layer becomes integers.
    Raises ContractError for a network that cannot be quantised, or another ModelError.
    """
    outputs = model.contract.outputs
    batches = batches_of(model, known.calibration)
    network = Network(file, outputs.logits, batches[0])
    layers = network.layers
    progress(f"calibrating {len(layers)} layers on {len(known.calibration)} positions")
    equalise(network, batches)
    found = seen(network, batches)
    roundings = {}
    for layer in layers:
        progress(f"rounding {layer.name}")
        matrix = layer.matrix(network.constants[layer.weight])
        roundings[layer.name] = rounded(matrix, found.moments[layer.name], LARGEST[weights.bits])
    writer = Writer(network, found, roundings, batches[0], unsigned=weights.unsigned)
    choice = Choice(tuple(layers), ())
    if limits is not None:
        judge, ranking = Judge(model, known.search), Judge(model, known.search[:RANKING])
        choice = chosen(layers, network.multiplications, writer, judge, ranking, limits, progress)
    progress(f"judging on {len(known.judged)} other positions")
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "quantised.onnx"
        writer.write(choice.integers, written)
        session = OnnxSession(written, 1)
        judgement = Judge(model, known.judged).judged(session)
        names = [outputs.logits] + ([outputs.value.name] if outputs.value else [])
        fast = speed(OnnxSession(file, 1), session, batches_of(model, known.judged[:BATCH])[0], names)
        content = written.read_bytes()
    return Quantised(
        content,
        judgement,
        fast,
        tuple(layer.name for layer in choice.integers),
        tuple(layer.name for layer in choice.floats),
        len(known.calibration),
    )


def batches_of(model: Model, known: Sequence[Known]) -> list[dict[str, Array]]:
    """A model's inputs for positions, in batches."""
    parts = (known[start : start + _BATCH] for start in range(0, len(known), _BATCH))
    return [model.feeds(model.whole_batch([one.position for one in part], [one.elo for one in part])) for part in parts]
