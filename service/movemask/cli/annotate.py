"""`movemask annotate`."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np
from numpy.typing import NDArray

from movemask.atomic_writes import atomic_write
from movemask.board.pgn import read_trees
from movemask.board.textfile import TextSource
from movemask.cli.options import RATING, TEMPERATURE, RatingsCommand, models_dir_option, registry_of
from movemask.errors import InvalidPgn, MovemaskError
from movemask.evaluate import Direct
from movemask.games.annotation import annotated
from movemask.games.engine import Engine
from movemask.policy.normalisation import Temperature
from movemask.settings import NetworkSettings

_OWN_ROWS = 10  # players with a row of their own

#: By player: number of moves, their summed surprise, and how many were the network's first choice.
Totals = dict[str, NDArray[np.float64]]


@click.command(cls=RatingsCommand, short_help="Annotate the moves of a PGN.")
@click.argument("games", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, instead of standard output.",
)
@click.option("--model", help="Name of the model; otherwise the default.")
@models_dir_option
@click.option(
    "--elo",
    type=RATING,
    nargs=2,
    metavar="WHITE [BLACK]",
    help="Ratings to use instead of the headers'.",
)
@click.option("--temperature", type=TEMPERATURE, default=1.0, show_default=True)
@click.option(
    "--calibrated",
    is_flag=True,
    help="Use the contract's fitted temperature instead of --temperature.",
)
@click.option(
    "--engine",
    metavar="PROGRAM",
    help="UCI engine that judges the moves, by name or path; empty: none.",
)
def annotate(
    games: str,
    out: Path | None,
    model: str | None,
    settings: NetworkSettings,
    elo: tuple[float, float] | None,
    temperature: float,
    calibrated: bool,
    engine: str | None,
) -> None:
    """Annotate the moves of GAMES, a PGN (- for standard input; also .gz, .zst).

    Each move gets a comment with its probability, rank and surprise. What it cost is told by the rules, by [%eval] in
    the file and, where there is none, by an engine, which writes its own; inaccuracies get ?!, mistakes ?, blunders ??.
    The default is stockfish, if it is on PATH (MOVEMASK_ENGINE); it takes seconds for a game. Comments, glyphs,
    variations and line ends stay. A summary goes to standard error. Exits with 1 if no game could be read; a file
    without games gives no output.
    """
    if calibrated and temperature != 1:
        raise click.UsageError("--temperature cannot be combined with --calibrated")
    chosen = registry_of(settings).get(model)
    judge = Engine(
        (settings if engine is None else NetworkSettings.read(engine=engine)).engine_program
    )
    degrees: Temperature = "calibrated" if calibrated else temperature
    players: Totals = defaultdict(lambda: np.zeros(3))

    async def write_all(source: TextSource, stream: BinaryIO) -> None:
        number = 0
        async with aclosing(judge):
            async for game in annotated(
                Direct(chosen),
                read_trees(source),
                degrees,
                elo=elo,
                engine=judge if judge.exists else None,
            ):
                why = str(game.report).removeprefix("pgn: ")
                if game.no_game:
                    raise InvalidPgn(
                        f"{games}: {why}. Give a PGN; `movemask audit` also reads lists of positions"
                    )
                stream.write(f"{game}\n\n".replace("\n", source.newline).encode())
                number += game.text is not None and game.text.role == "game"
                if game.report is None:
                    continue
                if isinstance(game.report, MovemaskError):
                    click.echo(f"left as it is: {games}: {why}", err=True)
                    continue
                for note in game.report.game.notes:
                    click.echo(f"{games}: game {number}: {note}", err=True)
                for colour, side in (("White", game.report.white), ("Black", game.report.black)):
                    if side is not None:
                        name = game.report.game.headers.get(colour, "?")
                        players[name] += side.moves * np.array([1, side.cross_entropy, side.top1])

    with TextSource(games) as source:
        if out is None:
            # a PGN is UTF-8, whatever the console's encoding
            asyncio.run(write_all(source, sys.stdout.buffer))
            sys.stdout.flush()
        else:
            with atomic_write(out) as stream:
                asyncio.run(write_all(source, stream))
    if not players:
        raise SystemExit(1)  # the reasons have been shown already
    click.echo(_table(players), err=True)


def _table(players: Totals) -> str:
    """Returns a row for each player with many moves, a row for the others, and a row for all.

    Means are over moves.
    """
    most = sorted(players, key=lambda name: (-players[name][0], name))
    rows = {name: players[name] for name in most[:_OWN_ROWS]}
    if len(most) > _OWN_ROWS:
        rows[f"{len(most) - _OWN_ROWS} others"] = sum(
            (players[name] for name in most[_OWN_ROWS:]), np.zeros(3)
        )
    if len(most) > 1:
        rows["all"] = sum(players.values(), np.zeros(3))
    width = max(6, *map(len, rows))
    lines = [f"{'player':<{width}}  moves  mean surprise, nats  perplexity  first choice"]
    for name, (moves, surprise, first) in rows.items():
        with np.errstate(over="ignore"):
            means = f"{surprise / moves:19.3f}  {np.exp(surprise / moves):10.2f}  {100 * first / moves:10.1f} %"
        lines.append(f"{name:<{width}}  {moves:5.0f}  {means}")
    return "\n".join(lines)
