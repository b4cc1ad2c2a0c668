"""Held-out figures of a model beside others: `python -m training.report RUN.toml models/NAME --beside FOLDER`.

Writes models/NAME.report.md. With `--split test --write` the figures become the card's `[card.measured]`; until then
look at the validation split, so that the test is touched once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import chess
import numpy as np
import tomlkit

from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate_positions
from movemask.games.sweep import RATINGS
from movemask.network.model import Model
from movemask.network_tools.diagnosis import commonest
from training.config import Run, load_run
from training.curves import curves
from training.measure import BATCH, Measured, Nearest, loaded, measure, microseconds, takes_history
from training.samples import Sample, samples
from training.strength import (
    RATINGS as SPOT_RATINGS,
)
from training.strength import (
    STRONG,
    WEAK,
    Floats,
    forecast,
    is_mate,
    is_wasted,
    match,
    openings,
    positions_with,
    probability_of,
)

PER_GAME = 6
HISTORY = " + moves"
BANDS = (0, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 4000)
FEWEST = 100  # positions of a band that are worth a figure
SWEPT = 120  # commonest positions, whose curves by rating are looked at
MATES, WASTES = 300, 100  # positions with a mate in one, and with a stalemate in one for a side well ahead
#: What players hardly miss, or what networks read wrongly first: FEN or moves, and the move looked for.
SPOTS = {
    "a hanging queen": ("e2e4 e7e5 d1h5 g8f6 b1c3", "f6h5"),
    "mate on the back rank": ("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", "d1d8"),
    "mate on the back rank, by the king's file": ("6k1/5ppp/8/8/8/8/5PPP/4R1K1 w - - 0 1", "e1e8"),
    "Scholar's mate given": ("e2e4 e7e5 f1c4 b8c6 d1h5 g8f6", "h5f7"),
    "Scholar's mate met": ("e2e4 e7e5 d1h5 b8c6 f1c4", "g7g6"),
    "a recapture": ("d2d4 d7d5 c2c4 e7e6 b1c3 g8f6 c4d5", "e6d5"),
    "Two Knights, Ng5": ("e2e4 e7e5 g1f3 b8c6 f1c4 g8f6 f3g5", "d7d5"),
    "castling short": ("e2e4 e7e5 g1f3 b8c6 f1c4 f8c5 c2c3 g8f6 d2d3 d7d6", "e1g1"),
    "castling long": ("r3kb1r/pppq1ppp/2n1pn2/3p1b2/3P1B2/2N1PN2/PPPQ1PPP/R3KB1R w KQkq - 4 8", "e1c1"),
    "en passant": ("e2e4 e7e6 e4e5 d7d5", "e5d6"),
    "under-promotion": ("8/2P1k3/1q6/8/8/8/7K/8 w - - 0 1", "c7c8n"),
}


def report(models: Sequence[Model | Nearest], columns: Mapping[str, Measured]) -> str:
    """The tables on the columns, the first of which the report is about."""
    overall = {
        "top-1 %": lambda m: f"{100 * m.top(1):.1f} ± {100 * m.errors()[0]:.1f}",
        "top-3 %": lambda m: f"{100 * m.top(3):.1f}",
        "cross-entropy": lambda m: f"{m.cross_entropy():.3f} ± {m.errors()[1]:.3f}",
        "calibration error": lambda m: f"{m.calibration_error():.4f}",
        "raw leakage, mean": lambda m: f"{m.raw.mean():.3g}",
        "99 %": lambda m: f"{np.quantile(m.raw, 0.99):.3g}",
        "Brier of the value": lambda m: "none" if (b := m.brier()) is None else f"{b[0]:.3f} ({b[1]:.3f})",
    }
    rating = next(iter(columns.values())).rating
    bands = {
        f"{low}-{high} ({rows.sum():,})": rows
        for low, high in pairwise(BANDS)
        if (rows := (rating >= low) & (rating < high)).sum() >= FEWEST
    }
    top = {
        name: {label: f"{100 * one.top(1, rows):.1f} / {one.cross_entropy(rows):.3f}" for label, rows in bands.items()}
        for name, one in columns.items()
    }
    single = [model for model in models if isinstance(model, Model) and model.contract.takes_elo]
    return "\n".join(
        [
            _table({name: {key: cell(one) for key, cell in overall.items()} for name, one in columns.items()}),
            f"*{HISTORY.strip()}*: with the game's last moves, otherwise from the FEN alone. Cross-entropy in nats "
            "over the legal moves. ±: one standard error. Calibration error of the likeliest move, 15 bins. Raw "
            "leakage: what plain softmax gives to illegal moves. Brier: of win, draw, loss; in brackets, of always "
            "saying how often each came.\n",
            differences(columns),
            "## By the mover's rating: top-1 % / cross-entropy\n",
            _table(top),
            f"## Weak spots: % of the move looked for at {', '.join(map(str, SPOT_RATINGS))}\n",
            _table({name: {m.name: _spot(m, *spot) for m in single} for name, spot in SPOTS.items()}),
        ]
    )


def differences(columns: Mapping[str, Measured]) -> str:
    """How much better the first column's network is than the others, each with the moves or without as they are."""
    own = next(iter(columns))
    rows: dict[str, dict[str, str]] = {}
    for name, one in columns.items():
        first = columns.get(own + HISTORY if name.endswith(HISTORY) else own)
        if first is not None and first is not one:
            difference, error = first.better_than(one)
            rows[name] = {"nats": f"{difference:.4f} ± {error:.4f}"}
    text = f"{own}'s cross-entropy is lower, position by position, than that of:\n\n"
    return text + _table(rows) if rows else ""


def _spot(model: Model, where: str, move: str) -> str:
    position = Position.read(where) if "/" in where else Position.read(moves=where.split())
    elos = [Elo(rating, rating) for rating in SPOT_RATINGS]
    evaluated = evaluate_positions(model, [position] * len(elos), elos)
    place = evaluated.batch.place_of(0, chess.Move.from_uci(move))
    logits = evaluated.unmasked.legal_logits.reshape(len(elos), -1)
    shares = np.exp(logits[:, place] - np.logaddexp.reduce(logits, axis=1))
    return " / ".join(f"{100 * share:.0f}" for share in shares)


def _strength(run: Run, split: str, models: Sequence[Model | Nearest], games: int) -> str:
    """The tables of `training.strength`, of networks that take ratings; `games` against itself."""
    single = [model for model in models if isinstance(model, Model) and model.contract.takes_elo]
    lines = openings(run.data, split, games // 2, run.seed)
    matches = {model.name: match(model, lines, run.seed) for model in single} if lines else {}
    mates, wasted = (
        positions_with(run.data, split, count, condition)
        for count, condition in ((MATES, is_mate), (WASTES, is_wasted))
    )
    rows: dict[str, dict[str, str]] = {}
    for model in single:
        row = rows[model.name] = {}
        if played := matches.get(model.name):
            row[f"{STRONG} against {WEAK}, {len(played.scores)} games"] = str(played)
            row["ended in stalemate"] = str(played.endings["stalemate"])
        for name, positions, condition in (
            ("mate in one", mates, is_mate),
            ("stalemates when ahead", wasted, is_wasted),
        ):
            row[f"{name} %, {len(positions)} positions"] = " / ".join(
                f"{100 * mean:.1f} ± {100 * error:.1f}"
                for mean, error in (probability_of(model, positions, condition).values() if len(positions) > 1 else ())
            )
        row["takes the queen %, forecast of a win %"] = " / ".join(
            f"{100 * share:.0f}, {'none' if win is None else f'{100 * win:.0f}'}"
            for share, win in forecast(model).values()
        )
    text = f"## Strength, as players feel it; at {', '.join(map(str, SPOT_RATINGS))} where there are three\n\n"
    endings = "".join(
        f"{name}: {', '.join(f'{count} {how}' for how, count in one.endings.most_common())}.\n"
        for name, one in matches.items()
    )
    about = (
        f"Against itself: the score of {STRONG}, at temperature 1, each of {len(lines)} openings of the {split} split "
        "with both colours. Mate in one: probability of the mates in positions of those games, with the moves before "
        "them; stalemates: of moves that stalemate where a side is five pawns ahead.\n"
    )
    return "\n".join([text + _table(rows), about, endings])


def _smoothness(models: Sequence[Model | Nearest], positions: Sequence[Position]) -> str:
    rows: dict[str, dict[str, str]] = {}
    for model in models:
        if isinstance(model, Model) and model.contract.takes_elo:
            per_position = curves(model, positions)
            step = max(np.abs(np.diff(curve, axis=0)).max() for curve in per_position)
            rows[model.name] = {"largest step": f"{step:.3f}", "bends": f"{bends(per_position):.4f}"}
    return (
        f"## Smooth in the rating\n\n{len(RATINGS)} ratings 100 apart, in the {len(positions)} commonest positions. "
        "Largest step: the most that a move's probability changes from one rating to the next. Bends: the absolute "
        "second differences along the ratings, summed over the moves, on average.\n\n" + _table(rows)
    )


def bends(per_position: Sequence[Floats]) -> float:
    """How far the curves `[ratings, moves]` of positions are from straight lines: the mean, over positions and ratings,
    of the absolute second differences summed over the moves. Players see bends as teeth in the chart."""
    return float(np.mean([np.abs(np.diff(curve, 2, axis=0)).sum(1).mean() for curve in per_position]))


def _table(rows: Mapping[str, Mapping[str, str]]) -> str:
    head = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(row.values()) + " |" for name, row in rows.items()]
    return "\n".join(lines) + "\n"


def write_card(card: Path, measured: Measured, with_moves: Measured | None, command: str, split: str) -> None:
    """Puts the figures into a card, in the place of older ones, and leaves the rest of the file as it is."""
    figures: dict[str, object] = {
        "command": command,
        "what": f"positions after the opening of held-out games ({split} split) by many players, FEN alone",
        "positions": len(measured),
        "top1": round(measured.top(1), 5),
        "top3": round(measured.top(3), 4),
        "cross_entropy": round(measured.cross_entropy(), 4),
        "calibration_error": round(measured.calibration_error(), 4),
    }
    if with_moves is not None:
        figures["top1_with_moves"] = round(with_moves.top(1), 5)
        figures["cross_entropy_with_moves"] = round(with_moves.cross_entropy(), 4)
    if (brier := measured.brier()) is not None:
        figures["brier"] = round(brier[0], 4)
    for low, high in pairwise(BANDS):
        band = (measured.rating >= low) & (measured.rating < high)
        if band.sum() >= FEWEST:
            figures[f"top1_{low}_{high}"] = round(measured.top(1, band), 4)
            figures[f"positions_{low}_{high}"] = int(band.sum())
    figures["raw_leakage_mean"] = float(f"{measured.raw.mean():.3g}")
    figures["raw_leakage_p99"] = float(f"{np.quantile(measured.raw, 0.99):.3g}")
    figures["raw_leakage_max"] = float(f"{measured.raw.max():.3g}")
    table = tomlkit.parse(card.read_text())
    table["card"]["measured"] = figures  # type: ignore[index]
    card.write_text(tomlkit.dumps(table))


def cost(models: Mapping[Path, Model], held_out: Sequence[Sample]) -> str:
    """What a position costs each model on one thread in batches, all in one run."""
    positions, elos = [s.position for s in held_out], [s.elo for s in held_out]
    feeds = {m.name: m.feeds(m.whole_batch(positions, elos)) for m in models.values()}
    files = {m.name: path.with_name(m.contract.network.file or f"{m.name}.onnx") for path, m in models.items()}
    spent = microseconds(files, feeds)
    rows = {
        name: {"µs a position": f"{spent[name]:.0f}", "MB": f"{file.stat().st_size / 1e6:.2f}"}
        for name, file in files.items()
    }
    return f"## Cost: CPU time on one thread, batches of {BATCH}, the networks taken in turn\n\n" + _table(rows)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="held-out figures of a model beside others")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml, for its shards")
    parser.add_argument("model", type=Path, help="such as models/movemask-8")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="models folders, measured too")
    parser.add_argument("--nearest", type=Path, help="a folder of Maia-1 nets, one row: the net nearest by rating")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--games", type=int, default=200, help="that each network plays against itself")
    parser.add_argument("--write", action="store_true", help="put the figures into the model's card")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    beside = [file.with_suffix("") for folder in arguments.beside for file in sorted(folder.glob("*.toml"))]
    single = {path: loaded(path) for path in (arguments.model, *beside)}
    models: list[Model | Nearest] = list(single.values())
    if arguments.nearest:
        nearest = Nearest.of(arguments.nearest, "maia-1 nearest")
        models.append(nearest)
        one = next(iter(nearest.models.values()))  # they cost the same
        single[arguments.nearest / one.name] = one
    held_out = samples(run.data, arguments.split, PER_GAME, run.seed)
    columns: dict[str, Measured] = {}
    for model in models:
        columns[model.name] = measure(model, held_out, history=False)
        if takes_history(model):
            columns[model.name + HISTORY] = measure(model, held_out, history=True)
    command = "python -m training.report " + " ".join(sys.argv[1:])
    parts = [
        f"# {arguments.model.name}: held-out figures\n\n{len(held_out):,} positions after move "
        f"{run.data.opening_plies // 2} of games by many players, up to {PER_GAME} a game, of the {arguments.split} "
        f"split, which training has not seen. Made by `{command}`.\n",
        report(models, columns),
        _strength(run, arguments.split, models, arguments.games),
        _smoothness(models, commonest(SWEPT)),
        cost(single, held_out[:BATCH]),
    ]
    text = "\n".join(parts)
    arguments.model.with_name(f"{arguments.model.name}.report.md").write_text(text)
    print(text)
    if arguments.write:
        about = models[0].name
        write_card(
            arguments.model.with_suffix(".toml"), columns[about], columns.get(about + HISTORY), command, arguments.split
        )


if __name__ == "__main__":
    main()
