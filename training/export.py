"""Checkpoint → ONNX and contract: `python -m training.export RUN.toml models/NAME --hardware "…"`.

Writes the network as floats, compared with torch. `movemask models quantize` makes integers of it, and says whether
they show.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import tomlkit
import torch

from movemask.numeric.losses import fitted_temperature
from training import checkpoints, dataset
from training.batches import Batch, gathered
from training.config import Data, Run, load_run
from training.data import PROGRESS
from training.levelling import level
from training.maia3 import LICENCE, SOURCE
from training.measure import microseconds
from training.network import Network
from training.onnx_file import INPUTS, OUTPUTS, feeds_of, write_floats
from training.train import held_out

TOLERANCE = 1e-3  # largest difference of a logit or of the value between torch and onnxruntime, both float32
COMPARED = 256  # validation positions
LEVELLED = 1024  # validation positions
STORED = 16  # positions kept with torch's answers, for a test that needs no torch


def export(run: Run, target: Path, hardware: str, purpose: str, earlier: Path | None = None) -> None:
    """Writes NAME.onnx, NAME.toml and, into the run's folder, NAME.sample.npz. With `earlier`, a folder with the
    checkpoint of an earlier sitting's end, the weights are the mean of both, which is smoother in the rating."""
    state = _state(run.folder)
    averaged: dict[str, object] = {}
    if earlier is not None:
        other = _state(earlier)
        state["network"] = {
            name: torch.lerp(other["network"][name], mine, 0.5) if mine.is_floating_point() else mine
            for name, mine in state["network"].items()
        }
        averaged = {"averaged": f"with its own weights at {int(other['step']) * run.training.batch} positions"}
    network = Network(run.network).eval()
    network.load_state_dict(state["network"])
    temperature, calibration = _cooled(network, run)
    level(network, *held_out(run).part(slice(LEVELLED)).inputs())
    split = dataset.load(replace(run.data, opening_share=1.0), "validation", run.seed)
    rows = np.random.default_rng(run.seed).permutation(len(split))[:COMPARED].astype(np.int64)
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target.with_suffix(".onnx")
    write_floats(network, gathered(split, rows[:64]), file)
    difference = _difference(network, file, gathered(split, rows))
    if not difference <= TOLERANCE:
        raise SystemExit(f"the ONNX file differs from torch by {difference}")
    cost = microseconds({"": file}, {"": feeds_of(gathered(split, rows[:32]))})[""]
    figures = {
        "weights": "fp32",
        "microseconds": round(cost, 1),
        "microseconds_what": "CPU time a position, batch of 32, one thread",
        "temperature_within": round(temperature, 4),
    }
    _write_contract(target, run, state, network, hardware, purpose, figures, calibration, averaged)
    _write_sample(network, gathered(split, rows[:STORED]), run.folder / f"{target.name}.sample.npz")
    print(f"{cost:.0f} µs a position, {file.stat().st_size / 1e6:.2f} MB, within {difference:.2g} of torch")


def _state(folder: Path) -> dict[str, Any]:
    state = checkpoints.load(folder)
    if state is None:
        raise SystemExit(f"{folder}: no checkpoint; python -m training.train makes one")
    return state


@torch.no_grad()
def _cooled(network: Network, run: Run) -> tuple[float, dict[str, object]]:
    """Fits a temperature to the moves played in validation positions and builds it into the policy. Returns it, and the
    contract's table of the calibration, which the network has then.

    A network whose teacher saw the game so far is surer than the last moves alone allow. Half of the positions are
    given without them, as in training.
    """
    batch = held_out(run).without_moves(slice(None, None, 2))
    assert batch.legal is not None
    rows, slots = np.nonzero(batch.legal.numpy())
    logits = torch.cat([network(*batch.part(slice(i, i + 512)).inputs())[0] for i in range(0, len(batch.slot), 512)])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(batch.slot)))])
    played = np.flatnonzero(slots == batch.slot.numpy()[rows]) - indptr[:-1]
    fitted = fitted_temperature(logits.numpy().astype(np.float64)[rows, slots], indptr, played)
    print(
        f"temperature {fitted.temperature:.4f} ± {fitted.standard_error:.4f}, built in: "
        f"cross-entropy {fitted.cross_entropy_before:.4f} -> {fitted.cross_entropy_after:.4f}"
    )
    network.cool(fitted.temperature)
    return fitted.temperature, {
        "temperature": 1.0,  # of the network as it is written
        "standard_error": round(fitted.standard_error / fitted.temperature, 4),
        "positions": len(played),
        "cross_entropy_before": round(fitted.cross_entropy_after, 4),
        "cross_entropy_after": round(fitted.cross_entropy_after, 4),
        "source": "validation split, training.export",
    }


@torch.no_grad()
def _difference(network: Network, file: Path, batch: Batch) -> float:
    logits, value = network(*batch.inputs())
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    found = session.run(list(OUTPUTS), feeds_of(batch))
    expected = (logits.numpy(), torch.softmax(value, 1).numpy())
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))


@torch.no_grad()
def _write_sample(network: Network, batch: Batch, file: Path) -> None:
    logits, value = network(*batch.inputs())
    packed = {"bitboards": batch.bitboards.numpy().view(np.uint64), "halfmove": batch.halfmove.numpy()}
    ratings = {"elo_self": batch.elo_self.numpy(), "elo_opponent": batch.elo_opponent.numpy()}
    answers = {"logits": logits.numpy(), "value": torch.softmax(value, 1).numpy()}
    np.savez_compressed(file, black=batch.black.numpy(), **packed, **ratings, **answers)
    print(f"{file}: torch's answers, for tests/data")


def _write_contract(
    target: Path,
    run: Run,
    state: dict[str, object],
    network: Network,
    hardware: str,
    purpose: str,
    figures: dict[str, object],
    calibration: dict[str, object],
    averaged: dict[str, object],
) -> None:
    file = target.with_suffix(".onnx")
    settings = run.network
    positions = int(str(state["step"])) * run.training.batch
    table = tomlkit.document()
    table.add(tomlkit.comment(f"{target.name}: contract and card. docs/models.md says what each key means."))
    table["network"] = {"file": file.name, "digest": "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()}
    table["contract"] = {
        "planes": "movemask-24",
        "vocabulary": "movemask-1880",
        "trained_with_mask": run.training.legality_weight == 0,
    }
    table["inputs"] = {name: name for name in INPUTS}
    table["outputs"] = {"logits": "logits", "value": {"name": "value", "softmaxed": True}}
    table["elo"] = {"default": 1500, "minimum": 600, "maximum": 2600, "scale": "lichess"}
    table["calibration"] = calibration
    table["card"] = {
        "purpose": purpose,
        "source": "trained by this project: training/README.md",
        "licence": "AGPL-3.0-or-later",
        "date": datetime.date.today(),
        **_data(run.data),
        **_teachers(run),
        "steps": int(str(state["step"])),
        "positions_seen": positions,
        **averaged,
        "architecture": f"{settings.depth} residual blocks of width {settings.width}, from-to policy head",
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "loss": _loss(run),
        "hardware": hardware,
        "training_seconds": round(float(str(state["seconds"]))),
        "limits": "Knows the last two moves, no clock and no time control; other rating scales are not lichess's.",
        "variant": figures,
    }
    target.with_suffix(".toml").write_text(tomlkit.dumps(table))


def _data(data: Data) -> dict[str, object]:
    counts = json.loads((data.folder / PROGRESS).read_text())["counts"]
    sources = ", ".join(prefix or "any" for prefix in data.source_prefixes)
    return {
        "data": f"games of sources that begin with {sources} (lichess's are CC0), at least {data.shortest_seconds} s",
        "games": counts["train games"],
        "plies": counts["train plies"],
    }


def _teachers(run: Run) -> dict[str, object]:
    """Who taught the network, and which weights it began with."""
    told: dict[str, object] = {}
    if run.teaching is not None:
        told["teacher"] = f"{SOURCE}; it saw the game so far and both ratings"
        told["teacher_licence"] = LICENCE
    if run.training.start is not None:
        told["started_from"] = run.training.start.parent.name
    return told


def _loss(run: Run) -> str:
    value = f"{run.training.value_weight} of the value's cross-entropy"
    if run.teaching is None:
        rules = f"{run.training.legality_weight} of -ln their share of all"
        return f"cross-entropy over the legal slots + {rules} + {value}"
    taught = run.teaching
    return (
        f"over all slots, {taught.weight} of the cross-entropy to the teacher and the rest to the move played; "
        f"+ {taught.rules_weight} of -ln the legal slots' share; + {value}"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="checkpoint -> ONNX and contract")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-4.toml")
    parser.add_argument("target", type=Path, help="such as models/movemask-4")
    parser.add_argument("--hardware", required=True, help="what it was trained on")
    parser.add_argument(
        "--purpose",
        default="The move that a human of a given lichess rating plays, from position and last moves.",
    )
    parser.add_argument("--mean-with", type=Path, help="folder with an earlier checkpoint: the mean of both's weights")
    arguments = parser.parse_args()
    export(load_run(arguments.run), arguments.target, arguments.hardware, arguments.purpose, arguments.mean_with)


if __name__ == "__main__":
    main()
