"""Which layers become integers: all, less those that must be given back for the result to stay within the limits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from movemask.network.onnx import OnnxSession
from movemask.quantisation.judgement import Judge, Judgement, Limits
from movemask.quantisation.network import Layer
from movemask.quantisation.writing import Writer

#: Share of the limits that the search keeps to: other positions, on which it is judged, give other figures.
_MARGIN = 0.95

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The layers that become integers and those that stay in float, in the order in which they were given back."""

    integers: tuple[Layer, ...]
    floats: tuple[Layer, ...]


def chosen(
    layers: Sequence[Layer],
    multiplications: Mapping[str, int],
    writer: Writer,
    judge: Judge,
    ranking: Judge,
    limits: Limits,
    progress: Progress,
) -> Choice:
    """The choice with the most layers in integers that is within the limits on the judge's positions.

    Layers are given back in the order of what each alone costs in KL divergence, for each multiplication; `ranking`
    finds that on fewer positions. One stays, even past the limits.
    """
    # Human accuracy is left to the judgement: on so few positions its noise is larger than its limit.
    target = replace(
        limits,
        kl=_MARGIN * limits.kl,
        flips=_MARGIN * limits.flips,
        clear_flips=_MARGIN * limits.clear_flips,
        accuracy=1.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.onnx"

        def judged(integers: Sequence[Layer], by: Judge = judge) -> Judgement:
            writer.write(integers, file)
            return by.judged(OnnxSession(file, 1))

        left, floats = list(layers), []
        found = judged(left)
        progress(f"all {len(left)} layers: {_line(found)}")
        if not found.excess(target):
            return Choice(tuple(left), ())
        costs = {}
        for layer in layers:
            costs[layer.name] = judged([layer], ranking).kl / multiplications[layer.name]
            progress(f"{layer.name} alone: KL {costs[layer.name] * multiplications[layer.name]:.5f}")
        for layer in sorted(layers, key=lambda layer: -costs[layer.name])[:-1]:
            left.remove(layer)
            floats.append(layer)
            found = judged(left)
            progress(f"{layer.name} in float: {_line(found)}")
            if not found.excess(target):
                break
    return Choice(tuple(left), tuple(floats))


def _line(found: Judgement) -> str:
    return f"KL {found.kl:.5f}, flips {found.flips:.2%}, {found.clear_flips:.2%} of clear first moves"
