"""`movemask annotate`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import click

from movemask.board.pgn import Lines
from movemask.cli.models import models_dir_option, registry_of
from movemask.extras import require
from movemask.pipeline import Pipeline
from movemask.policy import CALIBRATED
from movemask.tasks.annotation import MOST_PLOTTED, Players, Thresholds, annotated
from movemask.tasks.games import GameReport, SideReport

_DEFAULT = Thresholds()


@click.command()
@click.argument("games", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write, in place of standard output."
)
@click.option("--model", help="Name of the model; the default if left out.")
@models_dir_option
@click.option("--elo", type=float, nargs=2, metavar="WHITE BLACK", help="Ratings, in place of those in the headers.")
@click.option("--temperature", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--calibrated", is_flag=True, help="Use the contract's fitted temperature instead of --temperature.")
@click.option("--find", type=click.FloatRange(0, 1), default=_DEFAULT.find, show_default=True,
    help="! for a move of at most this probability after which the expected score is not lower.",
)  # fmt: skip
@click.option("--make", type=click.FloatRange(0, 1), default=_DEFAULT.make, show_default=True,
    help="?! for a move of at most this probability after which it is lower by --fall.",
)  # fmt: skip
@click.option("--fall", type=click.FloatRange(0, 1), default=_DEFAULT.fall, show_default=True)
@click.option("--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also plot the surprise of each move: .png, .svg or .pdf; the first eight games.",
)  # fmt: skip
def annotate(
    games: str,
    out: Path | None,
    model: str | None,
    models_dir: Path | None,
    elo: tuple[float, float] | None,
    temperature: float,
    calibrated: bool,
    find: float,
    make: float,
    fall: float,
    picture: Path | None,
) -> None:
    """Write GAMES, a PGN (- for standard input; also .gz, .zst), with each move's probability, rank and surprise as a
    comment, and glyphs for moves that few would find or few would make.

    Comments, glyphs and variations that are there stay. [%eval] is not written: the network's value is a forecast of
    the result between people, not an evaluation of the position. A summary by player goes to standard error.
    """
    if picture is not None:
        require("audit", "movemask annotate --plot")
    from movemask.audit.streams import LineReader, TextSource

    chosen = registry_of(models_dir).get(model)
    thresholds, degrees = Thresholds(find, make, fall), CALIBRATED if calibrated else temperature
    shown: list[GameReport] = []
    sides = Players()

    async def write_all(lines: Lines, write: Callable[[str], object]) -> None:
        pipeline = Pipeline(chosen, lambda _: None, max_batch=64, max_waiting=1 << 20)
        try:
            async for game in annotated(pipeline, lines, degrees, elo=elo, thresholds=thresholds):
                write(f"{game}\n\n")
                if isinstance(game.report, GameReport):
                    sides.add(game.report)
                    if picture is not None and len(shown) < MOST_PLOTTED:
                        shown.append(game.report)
                else:
                    click.echo(f"left as it is: {game.report}", err=True)
        finally:
            pipeline.close()

    with TextSource(games) as source:
        if out is None:
            asyncio.run(write_all(LineReader(source), lambda text: click.echo(text, nl=False)))
        else:
            partial = out.with_name(out.name + ".part")
            with open(partial, "w", encoding="utf-8") as stream:
                asyncio.run(write_all(LineReader(source), stream.write))
            os.replace(partial, out)
    click.echo(_table(sides.sides()), err=True, nl=False)
    if picture is not None and shown:
        from movemask.tasks.annotation_plot import plot

        plot(shown, picture)


def _table(sides: dict[str, SideReport]) -> str:
    """A line for each player."""
    if not sides:
        return ""
    width = max(len(name) for name in sides)
    lines = [f"{'player':<{max(width, 6)}}  moves  mean surprise, nats  perplexity  first choice"]
    for name, side in sides.items():
        lines.append(
            f"{name:<{max(width, 6)}}  {side.moves:5}  {side.cross_entropy:19.3f}  {side.perplexity:10.2f}  "
            f"{100 * side.top1:10.1f} %"
        )
    return "\n".join(lines) + "\n"
