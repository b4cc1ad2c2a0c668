"""Checkpoint → ONNX and contract: `python -m training.export RUN.toml models/NAME --hardware "…"`.

Writes the network as floats, compared with torch, and as 8-bit integers by the service's own quantisation on games of
the validation split. The integers are NAME if they are within its limits; the other variant stands beside.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort
import tomlkit
import torch

from movemask.cli.quantisation_text import quantisation_table
from movemask.network.registry import load_registry
from movemask.numeric.calibration import fitted_temperature
from movemask.quantisation.judgement import Limits
from movemask.quantisation.positions import sets
from movemask.quantisation.processor import REDUCED, weights_for
from movemask.quantisation.run import Quantised, quantised
from training import checkpoints, dataset
from training.batches import Batch, gathered
from training.config import Data, Run, load_run
from training.data import PROGRESS
from training.maia3 import LICENCE, SOURCE
from training.network import Network
from training.onnx_file import INPUTS, OUTPUTS, feeds_of, microseconds, write_floats
from training.pgn import write_pgn
from training.train import held_out

TOLERANCE = 1e-3  # largest difference of a logit or of the value between torch and onnxruntime, both float32
QUANTISED_GAMES = 500  # of the validation split, that the integers are made and judged on
COMPARED = 16384  # validation positions that the variants are compared on
STORED = 16  # positions kept with torch's answers, for a test that needs no torch


def export(run: Run, target: Path, hardware: str, purpose: str) -> None:
    """Writes NAME.onnx, its other variant, their TOML files and NAME.sample.npz."""
    state = checkpoints.load(run.folder)
    if state is None:
        raise SystemExit(f"{run.folder}: no checkpoint; python -m training.train makes one")
    network = Network(run.network).eval()
    network.load_state_dict(state["network"])
    fitted = _cooled(network, run)
    split = dataset.load(replace(run.data, opening_share=1.0), "validation", run.seed)
    rows = np.random.default_rng(run.seed).permutation(len(split))[:COMPARED].astype(np.int64)
    validation = gathered(split, rows)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = {name: run.folder / f"{name}.onnx" for name in ("fp32", "int8")}
    write_floats(network, gathered(split, rows[:64]), made["fp32"])
    difference = _difference(network, made["fp32"], gathered(split, rows[:256]))
    if not difference <= TOLERANCE:
        raise SystemExit(f"the ONNX file differs from torch by {difference}")
    card = partial(_write_contract, run=run, state=state, network=network, hardware=hardware, purpose=purpose)
    integers = _quantised(made["fp32"], card, run)
    made["int8"].write_bytes(integers.onnx)
    excess = integers.excess(Limits())
    default = "fp32" if excess else "int8"
    top1 = {name: _top1(file, validation) for name, file in made.items()}
    feeds = feeds_of(gathered(split, rows[:32]))
    cost = microseconds(made, dict.fromkeys(made, feeds))
    for name, file in made.items():
        print(f"{name}: top-1 {top1[name]:.4f}, {cost[name]:.0f} µs a position, {file.stat().st_size / 1e6:.2f} MB")
        placed = target if name == default else target.with_name(f"{target.name}-{name}")
        placed.with_suffix(".onnx").write_bytes(file.read_bytes())
        figures = {
            "weights": name,
            "top1_validation": round(top1[name], 4),
            "microseconds": round(cost[name], 1),
            "microseconds_what": "a position, batch of 32, one thread, the variants taken in turn",
            "temperature_within": round(fitted, 4),
        }
        if name == "int8":
            figures |= {
                "quantised_kl": round(integers.judgement.kl, 5),
                "quantised_flips": round(integers.judgement.flips, 4),
            }
        card(placed, figures=figures)
    _write_sample(network, gathered(split, rows[:STORED]), run.folder / f"{target.name}.sample.npz")
    print(f"{default} is {target.name}{', for ' + '; '.join(excess) if excess else ''}")
    print(f"the floats are within {difference:.2g} of torch")


@torch.no_grad()
def _cooled(network: Network, run: Run) -> float:
    """Fits a temperature to the moves played in validation positions and builds it into the policy; the temperature.

    A network that learned from teachers who saw the game's history is surer than the position alone allows.
    """
    batch = held_out(run)
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
    return fitted.temperature


def _quantised(floats: Path, card: Callable[..., None], run: Run) -> Quantised:
    """The floats as integers of seven bits, with which processors without VNNI give the same numbers as the others."""
    with tempfile.TemporaryDirectory() as folder:
        placed = Path(folder) / "floats"
        placed.with_suffix(".onnx").write_bytes(floats.read_bytes())
        card(placed, figures={"weights": "fp32"})
        games = Path(folder) / "validation.pgn"
        write_pgn(run.data, games, QUANTISED_GAMES)
        model = load_registry(Path(folder), placed.name, threads=1).get(placed.name)
        known = sets(model, [str(games)])
        result = quantised(model, placed.with_suffix(".onnx"), known, weights_for(REDUCED), Limits(), print)
    print(quantisation_table(result, Limits()))
    return result


def _session(file: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _top1(file: Path, batch: Batch) -> float:
    """Share of positions whose likeliest slot, legal or not, was played: enough to compare variants by."""
    session, feeds, hits = _session(file), feeds_of(batch), 0
    for start in range(0, len(batch.slot), 512):
        part = {name: array[start : start + 512] for name, array in feeds.items()}
        logits = session.run(["logits"], part)[0]
        hits += int((logits.argmax(1) == batch.slot[start : start + 512].numpy()).sum())
    return hits / len(batch.slot)


@torch.no_grad()
def _difference(network: Network, file: Path, batch: Batch) -> float:
    logits, value = network(*batch.inputs())
    found = _session(file).run(list(OUTPUTS), feeds_of(batch))
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
    table["card"] = {
        "purpose": purpose,
        "source": "trained by this project: training/README.md",
        "licence": "AGPL-3.0-or-later",
        "date": datetime.date.today(),
        **_data(run.data),
        **_teachers(run),
        "steps": int(str(state["step"])),
        "positions_seen": positions,
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
        "--purpose", default="The move that a human of a given lichess rating plays, from the position alone."
    )
    arguments = parser.parse_args()
    export(load_run(arguments.run), arguments.target, arguments.hardware, arguments.purpose)


if __name__ == "__main__":
    main()
