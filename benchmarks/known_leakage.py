"""What networks that are read rightly leak on the diagnosis' probes: `python -m benchmarks.known_leakage FOLDER …`.

Prints, as dictionaries, the highest mean `raw` leakage of the folders' networks: by tag and by phase, as `BY_TAG` and
`BY_PHASE` of `leakage/known.py` have it. The phases are those of each probe and of its history. The shipped network is
always among the networks.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from movemask.board.boards import PHASES, phases_of
from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate_positions
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import load_registry
from movemask.network_tools.diagnosis import probes, quick_look

_BATCH, _HISTORY = 64, 8


def _walked() -> Iterator[tuple[Position, Elo | None]]:
    """Each probe, and up to seven positions before it, as far as they have a legal move."""
    for probe in probes():
        board = probe.position.board.copy()
        for _ in range(_HISTORY):
            yield Position(board.copy()), probe.elo
            if not board.move_stack:
                break
            board.pop()


def _by_phase(model: Model) -> dict[str, tuple[float, int]]:
    sums, counts = defaultdict[str, float](float), defaultdict[str, int](int)
    walked = list(_walked())
    for start in tqdm(range(0, len(walked), _BATCH), desc=model.name, leave=False):
        positions, elos = zip(*walked[start : start + _BATCH], strict=True)
        evaluated = evaluate_positions(model, positions, elos)
        for phase, raw in zip(phases_of(evaluated.batch.boards).tolist(), evaluated.raw.tolist(), strict=True):
            sums[PHASES[phase].value] += raw
            counts[PHASES[phase].value] += 1
    return {phase: (sums[phase] / counts[phase], counts[phase]) for phase in sums}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="of networks that are read rightly, such as Maia-1's")
    by_tag, by_phase = defaultdict[str, float](float), defaultdict[str, float](float)
    for folder in (shipped_models(), *parser.parse_args().folders):
        for entry in load_registry(folder, None, 1):
            assert entry.model is not None, entry.failure
            for figures in quick_look(entry.model, np.inf).by_tag:
                by_tag[figures.name] = max(by_tag[figures.name], figures.raw_mean)
            phases = _by_phase(entry.model)
            print(entry.name, {phase: (float(f"{mean:.2g}"), count) for phase, (mean, count) in phases.items()})
            for phase, (mean, _) in phases.items():
                by_phase[phase] = max(by_phase[phase], mean)
    for name, known in (("BY_TAG", by_tag), ("BY_PHASE", by_phase)):
        print(f"{name} =", {key: float(f"{mean:.2g}") for key, mean in known.items()})


if __name__ == "__main__":
    main()
