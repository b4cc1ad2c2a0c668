"""`movemask predict`: the move distribution of a position as a table, or along a sweep of ratings."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import click

from movemask.board.fen import fen_in
from movemask.board.position import Elo, Position
from movemask.cli.options import RATING, Finite, RatingsCommand, models_dir_option, registry_of
from movemask.errors import MovemaskError
from movemask.evaluate import Direct, Query, answered
from movemask.games.reports import percent
from movemask.games.sweep import Series, Vary, elos_of, sweep
from movemask.network.model import Model
from movemask.policy.normalisation import Normalisation
from movemask.schemas.answers import LeakageOut, PolicyOut, SweepOut
from movemask.schemas.choices import Include
from movemask.server.api.responses import point_out, policy_out, sweep_out
from movemask.settings import NetworkSettings

_BAR = 30  # characters for a probability of 1
_MOVE_NUMBER = re.compile(r"(?<!\S)(?:\d+\.+|e\.?p\.?(?!\S))")  # and the mark of en passant
_LEAST_ILLEGAL = 0.001  # smallest probability of an illegal move in the table


@click.command(cls=RatingsCommand, short_help="Show the move distribution of a position.")
# a FEN without quotation marks is several arguments
@click.argument("fen", nargs=-1, metavar="[FEN]")
@click.option(
    "--moves",
    default="",
    help="Moves in UCI or SAN, from FEN or from the start: 'e2e4 e7e5', '1. e4 e5'.",
)
@click.option(
    "--elo",
    type=RATING,
    nargs=2,
    metavar="SELF [OPPONENT]",
    help="Ratings of the side to move and its opponent.",
)
@click.option("--temperature", type=Finite(min=0), default=1.0, show_default=True)
@click.option(
    "--calibrated",
    is_flag=True,
    help="Use the contract's fitted temperature instead of --temperature.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Keep the fewest moves that sum to this probability.",
)
@click.option("--chess960", is_flag=True, help="Read the FEN and write castling as Chess960.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Moves shown in the table.",
)
@click.option("--sweep", "swept", is_flag=True, help="Show one column per rating.")
@click.option(
    "--ratings",
    help="With --sweep: ratings separated by commas. [default: every hundred from 800 to 2500]",
)
@click.option("--model", help="Name of the model; otherwise the default.")
@models_dir_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the answer of POST /v1/policy (or of /v1/policy/sweep).",
)
def predict(
    fen: tuple[str, ...],
    moves: str,
    elo: tuple[float, float] | None,
    temperature: float,
    calibrated: bool,
    top_p: float | None,
    chess960: bool,
    top: int,
    swept: bool,
    ratings: str | None,
    model: str | None,
    settings: NetworkSettings,
    as_json: bool,
) -> None:
    """Show the move distribution of FEN (by default the start position). With --sweep, show it at many ratings.

    FEN may be given without quotation marks, and may stand in an address of lichess or chess.com.
    """
    if calibrated and temperature != 1:
        raise click.UsageError("--temperature cannot be combined with --calibrated")
    rule = Normalisation(temperature="calibrated" if calibrated else temperature, top_p=top_p)
    placed, is_960 = fen_in(" ".join(fen)) if fen else (None, False)
    played = tuple(_MOVE_NUMBER.sub(" ", moves).split())
    query = Query(placed, played, chess960 or is_960, Elo(*elo) if elo else None, rule)
    if elo if swept else ratings:
        raise click.UsageError("--ratings needs --sweep, and --elo cannot be combined with --sweep")
    chosen = registry_of(settings).get(model)
    if swept:
        click.echo(_sweep(chosen, query, _numbers(ratings), top, as_json))
        return

    include: list[Include] = ["san", "logit", "statistics"] if as_json else ["san", "illegal"]
    (out,) = answered(chosen, [query], lambda answer, _: policy_out(answer, include))
    if isinstance(out, MovemaskError):
        raise out
    if as_json:
        click.echo(json.dumps(out, indent=2))
    else:
        click.echo(_table(PolicyOut.model_validate(out), top, chosen.contract.card))


def _table(out: PolicyOut, top: int, card: Mapping[str, Any]) -> str:
    """Returns the answer for people.

    `card` : the network's, whose measured leakage stands beside the position's.
    """
    lines = [*_head(out.fen, out.turn, out.status), f"Network: {out.model.name}{_ratings(out)}."]
    if out.draw:
        verb = "A draw can be claimed" if out.draw.claimable else "The game is drawn"
        lines.append(f"{verb}: {out.draw.reason.replace('_', ' ')}.")
    if out.ignored:
        lines.append(f"The network cannot use {' and '.join(out.ignored)}.")
    if not out.moves or out.leakage is None:
        return "\n".join(lines)
    lines.append("")
    for move in out.moves[:top]:
        bar = "█" * round(_BAR * move.probability)
        lines.append(f"{move.san:<8} {move.uci:<6} {100 * move.probability:6.2f} %  {bar}".rstrip())
    if rest := [move.probability for move in out.moves[top:]]:
        lines.append(f"{f'{len(rest)} more':<15} {100 * sum(rest):6.2f} %")
    return "\n".join([*lines, "", *_value(out), *_leakage(out, out.leakage, card)])


def _head(fen: str, turn: str, status: str) -> list[str]:
    """Returns the FEN, and who is to move or how the game has ended."""
    if status == "ongoing":
        return [fen, f"{turn.capitalize()} to move."]
    end = f"{turn} is checkmated" if status == "checkmate" else f"stalemate, {turn} to move"
    return [fen, f"{end[0].upper()}{end[1:]}."]


def _ratings(out: PolicyOut) -> str:
    if out.elo is None:
        return ""
    limited = " (limited to the network's range)" if out.elo.clamped else ""
    return f", rating {out.elo.own:g} against {out.elo.opponent:g}{limited}"


def _value(out: PolicyOut) -> list[str]:
    """Returns the forecast of the result; nothing for a network without one."""
    value, turn = out.value, out.turn.capitalize()
    if value is None:
        return []
    if value.win is None or value.draw is None or value.loss is None:
        return [f"{turn} is expected to score {value.score:.3f}."]
    win, draw, loss = (100 * share for share in (value.win, value.draw, value.loss))
    return [f"{turn} wins {win:.1f} %, draws {draw:.1f} % and loses {loss:.1f} %."]


def _leakage(out: PolicyOut, leakage: LeakageOut, card: Mapping[str, Any]) -> list[str]:
    """Returns what mistakes with the mask would give to illegal moves."""
    lines = ["Illegal moves have 0 in this answer (served leakage)."]
    if leakage.raw is None:
        lines.append("What plain softmax would give them cannot be measured (raw leakage).")
    else:
        measured = card.get("measured")
        mean = measured.get("raw_leakage_mean") if isinstance(measured, dict) else None
        usual = f"; this network's mean is {percent(mean)}" if isinstance(mean, float) else ""
        lines.append(f"Plain softmax would give them {percent(leakage.raw)} (raw leakage{usual}).")
    heaviest = (
        [move for move in out.illegal.moves[:3] if move.probability >= _LEAST_ILLEGAL]
        if out.illegal
        else []
    )
    lines += [f"  {move.uci:<6} {100 * move.probability:6.2f} %" for move in heaviest]
    if leakage.trained_with_mask:
        lines.append("It was trained with the mask, so its raw leakage means nothing.")
    lines.append(
        f"softmax(logits * mask) would give them {percent(leakage.multiplied)} (multiplied leakage, which a "
        "constant added to all logits changes)."
    )
    return lines


def _sweep(model: Model, query: Query, ratings: list[float] | None, top: int, as_json: bool) -> str:
    """Returns the table of a sweep, or its JSON.

    Raises InvalidSweep and the errors of a position.
    """
    position = Position.read(query.fen, query.moves, chess960=query.chess960)
    elos = elos_of(model.name, model.contract, ratings, Vary.BOTH, None)
    series = [Series(Direct(model), elos)]
    points = asyncio.run(
        sweep(series, position, query.rule, lambda answer: point_out(answer, ["statistics"]))
    )
    written = sweep_out(points, position, san=True)
    if as_json:
        return json.dumps(written, indent=2)
    out = SweepOut.model_validate(written)
    lines = [*_head(out.fen, out.turn, out.status), f"Network: {model.name}."]
    if not out.moves:
        return "\n".join(lines)
    lines += [
        "",
        f"{'%':<8}" + "".join(f"{point.elo.own:>6g}" for point in out.points if point.elo),
    ]
    rows = [(move.san, move.probabilities) for move in out.moves]
    if rest := rows[top:]:
        totals = [
            sum(column)
            for column in zip(*(probabilities for _, probabilities in rest), strict=True)
        ]
        rows = [*rows[:top], (f"{len(rest)} more", totals)]
    lines += [
        f"{name:<8}" + "".join(f"{100 * p:>6.1f}" for p in probabilities)
        for name, probabilities in rows
    ]
    return "\n".join(lines)


def _numbers(ratings: str | None) -> list[float] | None:
    """Returns the ratings of `--ratings`; None if it is not given."""
    try:
        return None if ratings is None else [float(rating) for rating in ratings.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{ratings!r} is not a list of ratings, such as 1100,1500,1900"
        ) from None
