"""Checkpoint → ONNX and contract: `python -m training.export RUN.toml models/NAME --hardware "…"`.

Writes the network as floats, compared with torch, into the run's folder, and in 8-bit integers, compared with the
floats along the ratings. The integers become models/NAME where people cannot see the difference; otherwise the floats.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import tomlkit
import torch

from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate_positions
from movemask.games.sweep import RATINGS
from movemask.network.check import expected_score
from movemask.network.model import Model, Outputs
from movemask.network_tools.diagnosis import commonest
from movemask.policy.softmax import logsumexp
from movemask.policy.temperature import fitted_temperature
from training import checkpoints
from training.batches import Batch
from training.config import Data, Run, load_run
from training.curves import SWEPT, apart, curves
from training.data import PROGRESS
from training.maia3 import LICENCE, SOURCE
from training.measure import BATCH, loaded, microseconds
from training.network import Network
from training.onnx_file import INPUTS, OUTPUTS, Floats, feeds_of, write
from training.report import bends
from training.rounding import Range, held_ranges, hold, products, ranges
from training.samples import samples
from training.validation import held_out

#: Largest difference of a logit or of the value between torch and onnxruntime, both float32. movemask-6's logits in
#: float32 are up to 0.006 from those in float64, in either.
TOLERANCE = 5e-3
APART = 1e-3  # of a logit, alone and in a batch
#: Differences of the forecast (the expected score) that people hardly see: it is shown as a bar, in whole per cent.
FORECAST_LARGEST, FORECAST_MEAN = 0.05, 0.005
FITTED = 4096  # validation positions for the temperature, each with and without its game
CALIBRATED = 256  # validation positions for the integers' ranges, half of them without their game
STORED = 16  # positions kept with torch's answers, for a test that needs no torch


def export(run: Run, target: Path, hardware: str, purpose: str, floats: Sequence[str] = ()) -> None:
    """Writes NAME.onnx and NAME.toml and, into the run's folder, both networks and NAME.sample.npz; the products of the
    network that `floats` names are no integers."""
    torch.set_num_threads(run.training.threads)
    state = checkpoints.load(run.folder)
    if state is None:
        raise SystemExit(f"{run.folder}: no checkpoint; python -m training.train makes one")
    network = Network(run.network).eval()
    network.load_state_dict(state["network"])
    hold(network, {name: Range(**one) for name, one in state.get("ranges", {}).items()})
    bare, with_game = held_out(run, None, count=FITTED)
    temperature, calibration = _cooled(network, [*bare, *with_game])
    folders = {name: run.folder / name for name in ("floats", "integers")}
    files = {name: folder / f"{target.name}.onnx" for name, folder in folders.items()}
    for folder in (*folders.values(), target.parent):
        folder.mkdir(parents=True, exist_ok=True)
    within = held_ranges(network) or ranges(
        network, (one[0].part(slice(CALIBRATED // 2)).inputs() for one in (bare, with_game))
    )
    write(network, files["floats"])
    write(network, files["integers"], {name: one for name, one in within.items() if name not in floats})
    for _, product in products(network):
        product.rounds = False  # what goes in, as the floats do not
    if not (difference := _difference(network, files["floats"], bare[0])) <= TOLERANCE:
        raise SystemExit(f"the ONNX file differs from torch by {difference}")
    feeds = feeds_of(bare[0].part(slice(BATCH)))
    cost = microseconds(files, dict.fromkeys(files, feeds))
    for name, file in files.items():
        figures = {
            "weights": "fp32" if name == "floats" else "int8",
            "microseconds": round(cost[name], 1),
            "microseconds_what": f"CPU time a position, batch of {BATCH}, one thread",
            "temperature_within": round(temperature, 4),
        }
        _write_contract(file, run, state, network, hardware, purpose, figures, calibration)
        print(f"{name}: {cost[name]:.0f} µs a position, {file.stat().st_size / 1e6:.2f} MB")
    difference = _dependence(files["integers"], feeds)
    models = [loaded(folder / target.name) for folder in folders.values()]
    later = [sample.position for sample in samples(run.data, "validation", 1, run.seed)[:SWEPT]]
    positions = [*commonest(SWEPT), *later]
    floats_curves, integer_curves = (curves(model, positions) for model in models)
    swept = apart(floats_curves, integer_curves)
    scores = np.abs(np.subtract(*(forecasts(model, positions) for model in models)))
    visible = swept.seen or not (scores.max() <= FORECAST_LARGEST and scores.mean() <= FORECAST_MEAN)
    print(f"integers: {swept}; alone and in a batch apart by {difference:.2g}")
    print(f"forecast apart by {scores.max():.3f} at most, {scores.mean():.4f} on average")
    print(f"bends {bends(floats_curves):.4f} in floats, {bends(integer_curves):.4f} in integers")
    print(f"seen by people: {visible}")
    chosen = "floats" if visible or difference > APART else "integers"
    for suffix in (".onnx", ".toml"):
        shutil.copyfile(files[chosen].with_suffix(suffix), target.with_suffix(suffix))
    if chosen == "integers":
        forecast = {"forecast_largest": float(scores.max()), "forecast_mean": float(scores.mean())}
        _note(target.with_suffix(".toml"), {**asdict(swept), **forecast, "ratings": len(RATINGS)})
    _write_sample(network, bare[0].part(slice(STORED)), run.folder / f"{target.name}.sample.npz")
    print(f"{target}: the {chosen}")


@torch.no_grad()
def _cooled(network: Network, batches: Sequence[Batch]) -> tuple[float, dict[str, object]]:
    """Fits a temperature to the moves played in validation positions and builds it into the policy. Returns it, and the
    contract's table of the calibration, which the network has then. A constant is taken from all logits, so that they
    are log-probabilities on average: `softmax(logits * mask)` depends on it, a policy does not.

    A network whose teacher saw the game so far is surer than the last moves alone allow. Half of the positions are
    given without them, as in training.
    """
    legal = torch.cat([batch.legal for batch in batches])
    rows, slots = np.nonzero(legal.numpy())
    logits = torch.cat([network(*batch.inputs())[0] for batch in batches])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(legal)))])
    played = np.flatnonzero(slots == torch.cat([batch.slot for batch in batches]).numpy()[rows]) - indptr[:-1]
    values = logits.numpy().astype(np.float64)[rows, slots]
    fitted = fitted_temperature(values, indptr, played)
    offset = float(logsumexp(values / fitted.temperature, indptr).mean())
    print(
        f"temperature {fitted.temperature:.4f} ± {fitted.standard_error:.4f}, built in: "
        f"cross-entropy {fitted.cross_entropy_before:.4f} -> {fitted.cross_entropy_after:.4f}"
    )
    print(f"{offset:.4f} taken from every logit")
    network.cool(fitted.temperature)
    network.lower(offset)
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
    outputs = _session(file).run(list(OUTPUTS), feeds_of(batch))
    expected = (logits.numpy(), torch.softmax(value, 1).numpy())
    return max(float(np.abs(a - b).max()) for a, b in zip(outputs, expected, strict=True))


def _dependence(file: Path, feeds: Mapping[str, Any]) -> float:
    """How far a position's answer in a batch is from its answer alone."""
    session = _session(file)
    together = session.run(list(OUTPUTS), feeds)
    apart_by = 0.0
    for row in range(len(together[0])):
        alone = session.run(list(OUTPUTS), {name: array[row : row + 1] for name, array in feeds.items()})
        apart_by = max(apart_by, *(float(np.abs(a[0] - b[row]).max()) for a, b in zip(alone, together, strict=True)))
    return apart_by


def _session(file: Path) -> ort.InferenceSession:
    return ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def forecasts(model: Model, positions: Sequence[Position]) -> Floats:
    """The expected score of the side to move, `[positions * ratings]`, along the usual ratings."""
    elos = [Elo(rating, rating) for rating in RATINGS]
    evaluations = (evaluate_positions(model, [position] * len(elos), elos) for position in positions)
    return np.concatenate([expected_score(Outputs(part.unmasked.logits, part.value)) for part in evaluations])


@torch.no_grad()
def _write_sample(network: Network, batch: Batch, file: Path) -> None:
    logits, value = network(*batch.inputs())
    inputs = {"planes": batch.tokens.numpy().astype(np.uint8), **dict(zip(INPUTS[1:], batch.inputs()[1:], strict=True))}
    np.savez_compressed(file, **inputs, logits=logits.numpy(), value=torch.softmax(value, 1).numpy())
    print(f"{file}: torch's answers, for tests/data")


def _write_contract(
    file: Path,
    run: Run,
    state: Mapping[str, Any],
    network: Network,
    hardware: str,
    purpose: str,
    figures: Mapping[str, object],
    calibration: Mapping[str, object],
) -> None:
    settings, taught = run.network, run.teaching
    table = tomlkit.document()
    table.add(tomlkit.comment(f"{file.stem}: contract and card. docs/models.md says what each key means."))
    table["network"] = {"file": file.name, "digest": "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()}
    table["contract"] = {
        "planes": "movemask-tokens-99",
        "vocabulary": "movemask-1880",
        "trained_with_mask": taught.rules_weight == 0,
    }
    table["inputs"] = {name: name for name in INPUTS}
    table["outputs"] = {"logits": "logits", "value": {"name": "value", "softmaxed": True}}
    table["elo"] = {"default": 1500, "minimum": 600, "maximum": 2600, "scale": "lichess"}
    table["calibration"] = dict(calibration)
    table["card"] = {
        "purpose": purpose,
        "source": "trained by this project: training/README.md",
        "licence": "AGPL-3.0-or-later",
        "date": datetime.date.today(),
        **_data(run.data),
        "teacher": SOURCE,
        "teacher_licence": LICENCE,
        "steps": int(state["step"]),
        "positions_seen": checkpoints.seen(state),
        "architecture": f"a transformer of {settings.layers} layers, width {settings.width}, {settings.heads} heads",
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "loss": f"over the legal slots, {1 - taught.played_weight:g} of the KL divergence from the teacher and "
        f"{taught.played_weight:g} of the cross-entropy to the move played; + {taught.rules_weight:g} of -ln the legal "
        f"slots' share; + {taught.value_weight:g} of the value's KL divergence; + {taught.states_weight:g} of the "
        "squared difference from the teacher's states",
        "hardware": hardware,
        "training_seconds": round(float(state["seconds"])),
        "limits": "Knows eight positions of the game, no clock and no time control; other rating scales are not "
        "lichess's.",
        "variant": dict(figures),
    }
    file.with_suffix(".toml").write_text(tomlkit.dumps(table))


def _note(card: Path, swept: Mapping[str, float]) -> None:
    """Puts what the integers change into a card."""
    table = tomlkit.parse(card.read_text())
    table["card"]["variant"]["swept"] = {key: round(value, 5) for key, value in swept.items()}  # type: ignore[index]
    card.write_text(tomlkit.dumps(table))


def _data(data: Data) -> dict[str, object]:
    counts = json.loads((data.folder / PROGRESS).read_text())["counts"]
    sources = ", ".join(prefix or "any" for prefix in data.source_prefixes)
    return {
        "data": f"games of sources that begin with {sources} (lichess's are CC0), at least {data.shortest_seconds} s",
        "games": counts["train games"],
        "plies": counts["train plies"],
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="checkpoint -> ONNX and contract")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml")
    parser.add_argument("target", type=Path, help="such as models/movemask-8")
    parser.add_argument("--hardware", required=True, help="what it was trained on")
    parser.add_argument(
        "--purpose",
        default="The move that a human of a given lichess rating plays, from the position and the game before it.",
    )
    parser.add_argument("--floats", nargs="*", default=[], help="products that stay floats, such as head 3.attention")
    arguments = parser.parse_args()
    export(load_run(arguments.run), arguments.target, arguments.hardware, arguments.purpose, arguments.floats)


if __name__ == "__main__":
    main()
