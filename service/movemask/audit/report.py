"""The report of an audit: one self-contained HTML page, with plots as inline SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import chess
import chess.svg
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from movemask.audit.assessment import assessment_of, one_sided, sides
from movemask.audit.read import Skipped
from movemask.audit.run import Job
from movemask.audit.summary import REPORT_KINDS, ModelSummary, Threshold
from movemask.board.position import board_of
from movemask.leakage.causes import Cause
from movemask.leakage.cells import CAUSE
from movemask.leakage.groups import DIMENSIONS
from movemask.leakage.kinds import KINDS, MEANINGLESS_IF_MASKED, MEANINGS, MULTIPLIED, RAW
from movemask.leakage.known import IN_GAMES
from movemask.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Boards per network and kind. Few, so that the page opens quickly.
_BOARDS = {RAW: 6, MULTIPLIED: 3}
_BOARD_PIXELS = 250
_LEGAL, _ILLEGAL = "#2b7a3d", "#c1272d"

_ABOUT = {
    RAW: "what plain softmax gives to illegal moves",
    MULTIPLIED: "what <code>softmax(logits * mask)</code> gives to illegal moves",
}


def page(
    models: Sequence[ModelSummary],
    job: Job,
    command: str,
    skipped: Skipped,
    thresholds: Sequence[Threshold],
) -> str:
    """Returns the report of a job as HTML. `command` is the command line that started it."""
    environment = Environment(
        loader=PackageLoader("movemask.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"figure": _leakage, "count": "{:,}".format}
    about = [(kind, Markup(_ABOUT[kind])) for kind in REPORT_KINDS if kind in job.choice.kinds]
    return environment.get_template("report.html.j2").render(
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        job=job,
        command=command,
        skipped=skipped,
        thresholds=thresholds,
        models=models,
        readings=[
            (judged.level, _with_code(judged.words)) for judged in map(assessment_of, models)
        ],
        sides={model.name: sides(model) for model in models},
        one_sided=one_sided(models[0]),
        known=IN_GAMES,
        played=all(model.played for model in models),
        colours=dict(zip((model.name for model in models), _colours(models), strict=True)),
        meanings=MEANINGS,
        zeros={model.name: _zeros(model) for model in models},
        meaningless_if_masked=MEANINGLESS_IF_MASKED,
        distributions=[
            (
                kind,
                text,
                None if spike else Markup(distribution(models, kind)),
                spike,
                Markup(by_group(models, kind)),
            )
            for kind, text in about
            for spike in (_spike(models, kind),)
        ],
        causes=Markup(by_cause(models)),
        boards=[
            (kind, text, [(model, _boards(model, kind)) for model in models])
            for kind, text in about
        ],
    )


def _with_code(words: str) -> Markup:
    """Returns a sentence as HTML; commands in backticks become code."""
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(words))))


def _spike(models: Sequence[ModelSummary], kind: str) -> str | None:
    """Returns a sentence for a kind that leaks nearly everything nearly everywhere; None if a plot says more."""
    medians = [model.of(kind).quantiles["p50"] or 0.0 for model in models if model.of(kind).count]
    if not medians or min(medians) < _SPIKE:
        return None
    return f"Half of the positions leak {_leakage(min(medians))} or more, with every network: there is nothing to draw."


def _zeros(model: ModelSummary) -> dict[str, float]:
    """Returns the mean divergence, by kind, of kinds that leaked nothing: it is rounding error.

    Such a kind also changed no top move and gave no legal move probability 0.
    """
    cells = {kind: model.of(kind) for kind in KINDS}
    return {
        kind: cell.mean_kl or 0.0
        for kind, cell in cells.items()
        if cell.count and not cell.unmeasured and cell.max == cell.flips == cell.infinite == 0
    }


def _boards(model: ModelSummary, kind: str) -> list[dict[str, Any]]:
    """Returns the worst positions with their diagrams."""
    return [
        {"row": row, "svg": Markup(_board(row))}
        for row in model.worst.get(kind, [])[: _BOARDS[kind]]
    ]


def _board(row: dict[str, Any]) -> str:
    """Returns the position from the side to move. Legal moves are green, illegal moves red; likelier moves are more
    opaque."""
    board = board_of(row["fen"], chess960=row["chess960"])
    arrows = []
    for moves, colour in ((row["legal"][:3], _LEGAL), (row["illegal"][:3], _ILLEGAL)):
        for move in reversed(moves):
            if move["probability"] >= 0.01:
                parsed = chess.Move.from_uci(move["uci"])
                strength = round(96 + 159 * min(1.0, move["probability"]))
                arrows.append(
                    chess.svg.Arrow(
                        parsed.from_square, parsed.to_square, color=f"{colour}{strength:02x}"
                    )
                )
    check = board.king(board.turn) if board.is_check() else None
    return str(
        chess.svg.board(
            board,
            orientation=board.turn,
            arrows=arrows,
            check=check,
            size=_BOARD_PIXELS,
            coordinates=False,
        )
    )


def _leakage(value: float | None) -> str:
    """Returns a leakage in words."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if value >= 0.001:
        return f"{100 * value:.3g} %"
    return f"{value:.1e}"


#: Okabe & Ito's palette, safe for colour-blind readers, in the order of the networks.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "movemask",  # a fixed salt makes the output reproducible
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
}

_SPIKE = 0.9  # median from which on nearly everything leaks
_LEAST = -9  # smallest power of ten on the axes; smaller values are drawn at the edge

_TITLES = {
    "phase": "Phase",
    "side": "Side to move",
    "in_check": "In check",
    "legal_moves": "Legal moves",
    "elo": "Mover's rating",
}


def distribution(models: Sequence[ModelSummary], kind: str) -> str:
    """Returns a histogram of leakage by quarter powers of ten, and the share of positions with at least a given
    leakage."""
    figure, (histogram, exceedance) = _figure(2, (9.6, 3.3))
    edges = np.arange(_LEAST, 0.26, 0.25)
    for model, colour in zip(models, _colours(models), strict=True):
        if kind not in model.histograms:
            continue
        values, counts = np.array(model.histograms[kind]).T
        powers = np.log10(np.maximum(values, 10.0**_LEAST)).clip(_LEAST, 0)
        share = counts / counts.sum()
        heights, _ = np.histogram(powers, edges, weights=share)
        histogram.stairs(heights, edges, color=colour, label=_label(model), linewidth=1.4)
        order = np.argsort(powers)
        exceedance.step(
            powers[order],
            np.cumsum(share[order][::-1])[::-1],
            color=colour,
            label=_label(model),
            where="post",
        )
    histogram.set_ylabel("share of positions")
    exceedance.set_ylabel("share with at least this leakage")
    _readable(exceedance, upper=1.0)
    for axes in (histogram, exceedance):
        axes.set_xlabel(f"{kind} leakage")
        axes.set_xlim(_LEAST, 0)
        ticks = range(_LEAST, 1, 2 if _LEAST % 2 else 3)
        axes.set_xticks(
            list(ticks),
            [
                f"≤ 1e{power}" if power == _LEAST else f"1e{power}" if power else "1"
                for power in ticks
            ],
        )
    if len(models) > 1:
        exceedance.legend(loc="lower left", fontsize=9)
    return _svg(figure)


def by_group(models: Sequence[ModelSummary], kind: str) -> str:
    """Returns the mean (filled) and 99th percentile (hollow) of each group, on a log scale."""
    dimensions = [
        dimension
        for dimension in DIMENSIONS
        if any(len(model.groups(dimension)) > 1 for model in models)
    ]
    if not dimensions:
        return ""
    widths = [max(len(model.groups(dimension)) for model in models) + 1 for dimension in dimensions]
    figure, grid = _figure(
        len(dimensions), (max(4.0, 0.42 * sum(widths) + 1), 3.2), width_ratios=widths, sharey=True
    )
    axes_of = np.atleast_1d(np.asarray(grid))
    for axes, dimension in zip(axes_of, dimensions, strict=True):
        names = max((model.groups(dimension) for model in models), key=len)  # in natural order
        for number, (model, colour) in enumerate(zip(models, _colours(models), strict=True)):
            shift = (number - (len(models) - 1) / 2) * 0.7 / max(len(models), 2)
            for place, name in enumerate(names):
                cell = model.of(kind, dimension, name)
                if cell.count:
                    for value, fill in ((cell.mean, "full"), (cell.quantiles["p99"], "none")):
                        height = max(value or 0.0, 10.0**_LEAST)
                        axes.plot(
                            place + shift, height, "o", color=colour, markersize=4.5, fillstyle=fill
                        )
        slanted = sum(map(len, names)) > 12
        axes.set_xticks(range(len(names)), names, rotation=60 if slanted else 0)
        for label in axes.get_xticklabels() if slanted else []:
            label.set(ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_title(_TITLES[dimension], fontsize=10)
        axes.grid(axis="x", visible=False)
    _readable(axes_of[0], upper=1.0)
    axes_of[0].set_ylabel(f"{kind} leakage")
    return _svg(figure)


def _readable(axes: Any, upper: float) -> None:
    """Makes the vertical axis logarithmic: two or more whole powers of ten up to `upper`, with ticks in words."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low = min(beside.dataLim.intervaly[0] for beside in axes.get_shared_y_axes().get_siblings(axes))
    floor = math.floor(math.log10(max(low, 10.0**_LEAST))) if math.isfinite(low) and low > 0 else -2
    axes.set_ylim(10.0 ** min(floor, math.log10(upper) - 2), upper * 1.15)
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _leakage(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def by_cause(models: Sequence[ModelSummary]) -> str:
    """Returns each cause's share of all `raw` mass: one stacked bar per network."""
    models = [model for model in models if model.of(RAW).sum > 0]
    if not models:
        return ""
    figure, axes = _figure(1, (9.6, 0.5 * len(models) + 1.7))
    colours = {cause.value: _CAUSE_COLOURS[place] for place, cause in enumerate(Cause)}
    labelled = set()
    for place, model in enumerate(models):
        left, total = 0.0, model.of(RAW).sum
        for cause in (cause.value for cause in Cause):
            share = model.of(RAW, CAUSE, cause).sum / total
            label = cause if cause not in labelled and share > 0 else None
            axes.barh(place, share, left=left, color=colours[cause], label=label, height=0.65)
            labelled |= {cause} if share > 0 else set()
            left += share
        axes.barh(
            place,
            max(0.0, 1 - left),
            left=left,
            color="#eeeeee",
            label="below the threshold" if not place else None,
        )
    axes.set_yticks(range(len(models)), [_label(model) for model in models])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("part of all raw leakage")
    figure.legend(ncols=5, fontsize=9, loc="outside lower center")
    return _svg(figure)


_CAUSE_COLOURS = (
    *("#7f7f7f", "#bcbd22", "#e377c2", "#9467bd", "#1f77b4", "#17becf"),
    *("#d62728", "#ff7f0e", "#ffbb78", "#2ca02c", "#8c564b"),
)


def _label(model: ModelSummary) -> str:
    """Returns the name escaped for matplotlib: a dollar would begin a formula, a leading underscore would hide the
    label."""
    name = model.name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def _colours(models: Sequence[ModelSummary]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(models))]


def _figure(columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    """Returns a figure with one row, without pyplot's global state."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        return figure, figure.subplots(1, columns, **options)


def _svg(figure: Figure) -> str:
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = out.getvalue()
    return text[text.index("<svg") :]
