"""Held-out figures of a model beside others: `python -m training.report RUN.toml models/NAME --beside FOLDER`.

Writes models/NAME.report.md and NAME.report.png. With `--split test --write` the figures become the card's
`[card.measured]`; until then look at the validation split, so that the test is touched once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import tomlkit

from movemask.board.boards import Phase
from movemask.network.model import Model
from movemask.network.registry import load_registry
from training import openings
from training.config import Run, load_run
from training.measure import Measured, Nearest, in_phase, measure
from training.nearest import nets_by_rating
from training.onnx_file import microseconds
from training.plots import BANDS, FEWEST, draw
from training.samples import Sample, Special, samples, special_samples

PER_GAME = 6
SPECIALS = 400
HISTORY = " + history"
QUANTILES = (0.5, 0.9, 0.99, 1.0)


def report(run: Run, models: Sequence[Model | Nearest], split: str, command: str) -> tuple[str, dict[str, Measured]]:
    """The report's Markdown on `models`, the first of which it is about, and what was measured by column."""
    found = samples(run.data, split, PER_GAME, run.seed)
    columns = {model.name: measure(model, found, history=False) for model in models}
    for model in models:
        if _takes_history(model):
            columns[model.name + HISTORY] = measure(model, found, history=True)
    about = models[0].name
    parts = [
        f"# {about}: held-out figures\n",
        f"{len(found):,} positions after move {run.data.opening_plies // 2} of games by many players, up to {PER_GAME} "
        f"a game, of the {split} split, which training has not seen. Made by `{command}`.\n",
        "All models go through the service's own path, from the FEN alone; *+ history* with the moves before it. "
        "A column *nearest* gives each position to the net of the ratings nearest to the mover's; a single Maia-1 net "
        "is shown over all ratings.\n",
        "## All positions\n",
        _table(columns, _overall),
        "Cross-entropy in nats over the legal moves; perplexity is e to its power. ECE is the expected calibration "
        "error of the likeliest move in 15 bins; the temperature is the one that minimises cross-entropy on these "
        "positions (fitted by its gradient). Brier: of win, draw, loss over the known results, and in brackets that of "
        "always saying how often each came.\n",
        f"![accuracy by rating, reliability, leakage, surprise]({about}.report.png)\n",
        "## By the mover's rating: top-1 % / cross-entropy\n",
        _table(columns, _bands),
        "## By phase: top-1 % / cross-entropy\n",
        "Opening: to the tenth move of both; endgame: six pieces or fewer beside kings and pawns.\n",
        _table(columns, _phases),
        "## Leakage\n",
        _table(columns, _leakages),
        "`raw`: what plain softmax gives to illegal moves; `multiplied`: what `softmax(logits * mask)` gives.\n",
        "## Special cases: top-1 % / cross-entropy\n",
        _special_table(models, special_samples(run.data, split, SPECIALS)),
    ]
    return "\n".join(parts), columns


def _overall(found: Measured) -> dict[str, str]:
    brier = found.brier()
    return {
        "top-1 %": f"{100 * found.top(1):.1f}",
        "top-3 %": f"{100 * found.top(3):.1f}",
        "cross-entropy": f"{found.cross_entropy():.3f}",
        "perplexity": f"{np.exp(found.cross_entropy()):.2f}",
        "ECE": f"{found.calibration_error():.4f}",
        "best temperature": f"{found.temperature.temperature:.3f}",
        "cross-entropy there": f"{found.temperature.cross_entropy_after:.3f}",
        "Brier of the value": "none" if brier is None else f"{brier[0]:.3f} ({brier[1]:.3f})",
    }


def _bands(found: Measured) -> dict[str, str]:
    rows = {}
    for low, high in pairwise(BANDS):
        band = (found.rating >= low) & (found.rating < high)
        if band.sum() >= FEWEST:
            label = f"{low}-{high} ({band.sum():,})"
            rows[label] = f"{100 * found.top(1, band):.1f} / {found.cross_entropy(band):.3f}"
    return rows


def _phases(found: Measured) -> dict[str, str]:
    rows = {}
    for phase in Phase:
        there = in_phase(found, phase)
        if there.any():
            label = f"{phase.value} ({there.sum():,})"
            rows[label] = f"{100 * found.top(1, there):.1f} / {found.cross_entropy(there):.3f}"
    return rows


def _leakages(found: Measured) -> dict[str, str]:
    rows = {}
    for kind, values in (("raw", found.raw), ("multiplied", found.multiplied)):
        rows[f"{kind} mean"] = f"{values.mean():.3g}"
        for quantile in QUANTILES:
            label = "maximum" if quantile == 1 else f"{quantile:.0%} quantile"
            rows[f"{kind} {label}"] = f"{np.quantile(values, quantile):.3g}"
    return rows


def _table(columns: Mapping[str, Measured], rows_of: object) -> str:
    assert callable(rows_of)
    return _markdown({name: rows_of(found) for name, found in columns.items()})


def _takes_history(model: Model | Nearest) -> bool:
    return model.takes_history if isinstance(model, Nearest) else model.contract.takes_history


def _special_table(models: Sequence[Model | Nearest], found: Mapping[Special, Sequence[Sample]]) -> str:
    columns: dict[str, dict[str, str]] = {}
    for model in models:
        for history in (False, True) if _takes_history(model) else (False,):
            column = columns.setdefault(model.name + HISTORY * history, {})
            for kind, part in found.items():
                if part:
                    one = measure(model, part, history=history)
                    column[f"{kind.value} ({len(part)})"] = f"{100 * one.top(1):.1f} / {one.cross_entropy():.3f}"
    return _markdown(columns)


def _markdown(columns: Mapping[str, Mapping[str, str]]) -> str:
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    first = next(iter(columns.values()))
    lines += [f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |" for row in first]
    return "\n".join(lines) + "\n"


def write_card(card: Path, found: Measured, command: str, split: str) -> None:
    """Puts the figures into a card, in the place of older ones, and leaves the rest of the file as it is."""
    figures: dict[str, object] = {
        "command": command,
        "what": f"positions after the opening of held-out games ({split} split) by many players, FEN alone",
        "positions": len(found),
        "top1": round(found.top(1), 4),
        "top3": round(found.top(3), 4),
        "cross_entropy": round(found.cross_entropy(), 4),
        "calibration_error": round(found.calibration_error(), 4),
    }
    if (brier := found.brier()) is not None:
        figures["brier"] = round(brier[0], 4)
    for low, high in pairwise(BANDS):
        band = (found.rating >= low) & (found.rating < high)
        if band.any():
            figures[f"top1_{low}_{high}"] = round(found.top(1, band), 4)
            figures[f"positions_{low}_{high}"] = int(band.sum())
    for kind, values in (("raw", found.raw), ("multiplied", found.multiplied)):
        figures[f"{kind}_leakage_mean"] = float(f"{values.mean():.3g}")
        figures[f"{kind}_leakage_p99"] = float(f"{np.quantile(values, 0.99):.3g}")
        figures[f"{kind}_leakage_max"] = float(f"{values.max():.3g}")
    table = tomlkit.parse(card.read_text())
    table["card"]["measured"] = figures  # type: ignore[index]
    card.write_text(tomlkit.dumps(table))


def speeds(models: Sequence[Model], files: Sequence[Path], found: Sequence[Sample]) -> str:
    """What a position costs each model on one thread in batches of 32, all in one run."""
    batches = {
        model.name: model.feeds(
            model.whole_batch([one.position for one in found[:32]], [one.elo for one in found[:32]])
        )
        for model in models
    }
    cost = microseconds(dict(zip(batches, files, strict=True)), batches)
    rows = {
        name: {"µs a position": f"{cost[name]:.0f}", "MB": f"{file.stat().st_size / 1e6:.2f}"}
        for name, file in zip(batches, files, strict=True)
    }
    return "## Cost: batch of 32, one thread, the networks taken in turn\n\n" + _markdown(rows)


def _loaded(file: Path) -> Model:
    return load_registry(file.parent, file.stem, threads=2).get(file.stem)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="held-out figures of a model beside others")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-4.toml, for its shards")
    parser.add_argument("model", type=Path, help="such as models/movemask-4")
    parser.add_argument("--beside", type=Path, help="a models folder; all in it are measured too")
    parser.add_argument("--nearest", type=Path, help="a folder of Maia-1 nets, one column: the net nearest by rating")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--write", action="store_true", help="put the figures into the model's card")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    files = [arguments.model.with_suffix(".toml")]
    if arguments.beside:
        files += sorted(arguments.beside.glob("*.toml"))
    models = [_loaded(file) for file in files]
    columns_of: list[Model | Nearest] = [*models]
    if arguments.nearest:
        known = {
            rating: arguments.nearest / f"{name}.toml" for rating, name in nets_by_rating(arguments.nearest).items()
        }
        columns_of.append(Nearest("maia-1 nearest", {rating: _loaded(file) for rating, file in known.items()}))
        if not {file.stem for file in files} & {file.stem for file in known.values()}:  # they cost the same
            files.append(next(iter(known.values())))
            models.append(_loaded(files[-1]))
    command = "python -m training.report " + " ".join(sys.argv[1:])
    text, columns = report(run, columns_of, arguments.split, command)
    networks = [
        file.with_name(m.contract.network.file or f"{m.name}.onnx") for m, file in zip(models, files, strict=True)
    ]
    if models[0].contract.takes_elo:
        text += "\n## Openings: the likeliest moves by rating\n\n" + openings.table(models[0])
    text += "\n" + speeds(models, networks, samples(run.data, "validation", 1, run.seed)[:32])
    arguments.model.with_name(f"{arguments.model.name}.report.md").write_text(text)
    draw(columns, arguments.model.name, arguments.model.with_name(f"{arguments.model.name}.report.png"))
    print(text)
    if arguments.write:
        write_card(files[0], columns[arguments.model.name], command, arguments.split)


if __name__ == "__main__":
    main()
