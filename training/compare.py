"""Short runs beside each other: `python -m training.compare RUN.toml … [--against FILE.onnx] > training/comparison.md`.

For each run the last line of its log, and what its network costs as ONNX: microseconds a position, batch of 32, one
thread, all networks taken in turn in this one process; as floats and as 8-bit integers where it has convolutions.
A run without a checkpoint is measured for cost alone, with random weights.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch

from training import checkpoints, dataset
from training.batches import gathered
from training.config import Run, load_run
from training.network import Network
from training.onnx_file import Feeds, feeds_of, microseconds, write_floats, write_integers

COLUMNS = ("positions", "seconds", "top1", "cross_entropy", "plain_cross_entropy", "raw_leakage", "value")


def _written(run: Run, name: str, folder: Path, sample: object) -> dict[str, Path]:
    """The run's network as ONNX files, by label."""
    torch.manual_seed(run.seed)
    network = Network(run.network).eval()
    state = checkpoints.load(run.folder)
    if state is not None:
        network.load_state_dict(state["network"])
    floats = folder / f"{name}.onnx"
    write_floats(network, sample, floats)  # type: ignore[arg-type]
    if run.network.body != "convolution":
        return {f"{name} fp32": floats}
    integers = folder / f"{name}.int8.onnx"
    write_integers(floats, sample, integers)  # type: ignore[arg-type]
    return {f"{name} fp32": floats, f"{name} int8": integers}


def _figures(run: Run) -> list[str]:
    log = run.folder / "log.jsonl"
    if not log.exists():
        return [""] * len(COLUMNS)
    last = json.loads(log.read_text().splitlines()[-1])
    return [f"{last[column]:,}" if column == "positions" else str(last[column]) for column in COLUMNS]


def _other(file: Path) -> Feeds:
    """Batches of 32 random planes for a network that is not ours, such as Maia-1's export."""
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    return {node.name: (rng.random((32, *node.shape[1:])) > 0.8).astype(np.float32) for node in session.get_inputs()}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="short runs beside each other")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--against", type=Path, help="an ONNX file to compare the cost with")
    arguments = parser.parse_args()
    runs = {file.stem: load_run(file) for file in arguments.runs}
    first = next(iter(runs.values()))
    split = dataset.load(first.data, "validation", first.seed)
    sample = gathered(split, np.arange(min(512, len(split))))
    with tempfile.TemporaryDirectory() as made:
        files: dict[str, Path] = {}
        for name, run in runs.items():
            files |= _written(run, name, Path(made), sample)
        feeds = dict.fromkeys(files, feeds_of(gathered(split, np.arange(32))))
        if arguments.against:
            files["against"], feeds["against"] = arguments.against, _other(arguments.against)
        cost = microseconds(files, feeds)
        size = {name: file.stat().st_size / 1e6 for name, file in files.items()}
    against = cost.get("against")
    print("| run | network | " + " | ".join(COLUMNS) + " | fp32: µs, MB | int8: µs, MB |")
    print("|---" * (len(COLUMNS) + 4) + "|")
    for name, run in runs.items():
        network = run.network
        body = f"{network.attention} attention" if network.body == "attention" else "convolution"
        cells = [name, f"{body}, {network.width} x {network.depth}", *_figures(run)]
        for kind in ("fp32", "int8"):
            label = f"{name} {kind}"
            cells.append(f"{cost[label]:.0f}, {size[label]:.2f}" if label in cost else "")
        print("| " + " | ".join(cells) + " |")
    if against is not None:
        print(f"\n{arguments.against.name}: {against:.0f} µs, {size['against']:.2f} MB, in the same run.")


if __name__ == "__main__":
    main()
