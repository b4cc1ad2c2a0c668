"""`movemask predict`: the move distribution of a position as a table, or along a sweep of ratings or models."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import click

from movemask.api.schemas.answers import Include
from movemask.api.writing import Point, point_of, policy_out, sweep_out
from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.cli.options import RatingsCommand, models_dir_option, registry_of
from movemask.errors import MovemaskError
from movemask.leakage.explain import explained
from movemask.network.model import Model
from movemask.pipeline import Answer, Pipeline, Query
from movemask.policy import CALIBRATED, Normalisation, Normalizer
from movemask.tasks.sweep import Part, Vary, elos_of, sweep

_BAR = 30  # characters of a probability of 1
_MOVE_NUMBER = re.compile(r"(?<!\S)\d+\.+")
_SHOWN_ILLEGAL = 0.001  # least probability of an illegal move to show it


@click.command(cls=RatingsCommand)
@click.argument("fen", required=False)
@click.option(
    "--moves",
    default="",
    help="Moves in UCI or SAN, played from FEN (the start position if none): 'e2e4 e7e5', '1. e4 e5'.",
)
@click.option(
    "--elo", type=float, nargs=2, metavar="SELF [OPPONENT]", help="Ratings of the side to move and its opponent."
)
@click.option("--temperature", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--calibrated", is_flag=True, help="Use the contract's fitted temperature instead of --temperature.")
@click.option(
    "--normalizer",
    type=click.Choice([normalizer.value for normalizer in Normalizer]),
    default="softmax",
    show_default=True,
)
@click.option("--alpha", type=click.FloatRange(1, 2), help="With --normalizer entmax: 1 is softmax, 2 sparsemax.")
@click.option("--top-k", type=click.IntRange(min=1), help="Keep the K most probable moves.")
@click.option(
    "--top-p", type=click.FloatRange(0, 1, min_open=True), help="Keep the fewest moves whose probabilities sum to this."
)
@click.option(
    "--min-p", type=click.FloatRange(0, 1), help="Keep moves with at least this share of the best move's probability."
)
@click.option("--chess960", is_flag=True, help="Read the FEN, and write castling, as Chess960.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Moves shown in the table.")
@click.option("--sweep", "swept", is_flag=True, help="One column per rating, or per --model if there are several.")
@click.option("--ratings", help="With --sweep: ratings separated by commas. [default: every hundred from 800 to 2500]")
@click.option(
    "--vary",
    type=click.Choice([vary.value for vary in Vary]),
    help="With --sweep: whose rating changes; --elo has the other's. [default: both]",
)
@click.option(
    "--model", "names", multiple=True, help="Name of the model; the default if left out. Several with --sweep."
)
@models_dir_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the whole answer as JSON, as POST /v1/policy (or its /sweep) gives it.",
)
def predict(
    fen: str | None,
    moves: str,
    elo: tuple[float, float] | None,
    temperature: float,
    calibrated: bool,
    normalizer: str,
    alpha: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    chess960: bool,
    top: int,
    swept: bool,
    ratings: str | None,
    vary: str | None,
    names: tuple[str, ...],
    models_dir: Path | None,
    as_json: bool,
) -> None:
    """Show the move distribution of FEN (the start position if left out), with --sweep at many ratings."""
    rule = Normalisation(Normalizer(normalizer), alpha, CALIBRATED if calibrated else temperature, top_k, top_p, min_p)
    query = Query(fen, tuple(_MOVE_NUMBER.sub(" ", moves).split()), chess960, Elo(*elo) if elo else None, rule)
    if not swept and (ratings or vary or len(names) > 1):
        raise click.UsageError("--ratings, --vary and several --model go with --sweep")
    registry = registry_of(models_dir)
    if swept:
        if len(names) > 1 and (ratings or vary):
            raise click.UsageError("several --model take the place of --ratings and --vary")
        click.echo(_sweep([registry.get(name) for name in names or [None]], query, ratings, vary, top, as_json))
        return
    include: list[Include] = ["san", "logit", "statistics"]

    def write(answer: Answer) -> str:
        return json.dumps(policy_out(answer, include), indent=2) if as_json else _table(answer, top)

    click.echo(asyncio.run(_evaluate(registry.get(names[0] if names else None), query, write)))


async def _evaluate(model: Model, query: Query, write: Callable[[Answer], str]) -> str:
    """`write(answer)` for a query, through the pipeline of the web service; nothing is recorded."""
    with closing(Pipeline(model, lambda *_: None, max_batch=1, max_waiting=1)) as pipeline:
        (outcome,) = await pipeline.evaluate([query], write)
    if isinstance(outcome, MovemaskError):
        raise outcome
    return outcome


def _table(answer: Answer, top: int) -> str:
    model, turn, board = answer.model, answer.position.turn, answer.position.board
    lines = [f"{answer.position.fen}", f"{turn} to move, {answer.status}; {model.name}"]
    draw = answer.draw
    if draw is not None:
        lines.append(f"a draw{' can be claimed' if draw.claimable else ''}: {draw.value.replace('_', ' ')}")
    if answer.elo:
        lines[1] += f", Elo {answer.elo.self:g} against {answer.elo.opponent:g}"
    if answer.ignored:
        lines.append(f"ignored: {', '.join(answer.ignored)} (this network cannot use it)")
    evaluated = answer.evaluated
    if evaluated is None:
        return "\n".join(lines)
    lines.append("")
    codes, probabilities = answer.policy
    for move, probability in list(zip(moves_of(codes), probabilities, strict=True))[:top]:
        bar = "█" * round(_BAR * probability)
        lines.append(f"{board.san(move):<8} {move.uci():<6} {100 * probability:6.2f} %  {bar}".rstrip())
    rest = len(codes) - top
    if rest > 0:
        lines.append(f"{f'{rest} more':<15} {100 * sum(probabilities[top:]):6.2f} %")
    if answer.rule.normalizer is Normalizer.SOFTMAX_ONE:
        lines.append(f"{'no move':<15} {100 * answer.abstention:6.2f} %")
    lines.append("")
    value = answer.value
    if value and len(value) == 1:
        lines.append(f"expected score {value[0]:.3f}, for {turn}")
    elif value:
        win, drawn, loss = (100 * share for share in value)
        lines.append(f"win {win:.1f} %  draw {drawn:.1f} %  loss {loss:.1f} %, for {turn}")
    raw = "not measurable" if answer.raw is None else f"{answer.raw:.2e}"
    masked = " (trained with the mask: raw means nothing)" if model.trained_with_mask else ""
    lines.append(f"leakage: raw {raw}{masked}, multiplied {answer.multiplied:.2e}, served 0")
    batch = evaluated.batch
    heavy = evaluated.unmasked.heavy(_SHOWN_ILLEGAL)
    illegal, _ = explained(heavy, batch.boards, model.vocabulary, batch.codes, batch.indptr, named=3).of(0)
    lines += [f"  illegal {move.uci:<6} {100 * move.probability:6.2f} % of plain softmax" for move in illegal]
    return "\n".join(lines)


def _sweep(
    models: Sequence[Model], query: Query, ratings: str | None, vary: str | None, top: int, as_json: bool
) -> str:
    """The table of a sweep, or its JSON. Raises InvalidSweep and the errors of a position."""
    position = Position.read(query.fen, query.moves, chess960=query.chess960)
    with ExitStack() as stack:
        parts = []
        for model in models:
            pipeline = stack.enter_context(closing(Pipeline(model, lambda *_: None, max_batch=64, max_waiting=1)))
            elos: Sequence[Elo | None] = [query.elo]
            if len(models) == 1:
                elos = elos_of(model.name, model.contract, _numbers(ratings), Vary(vary or "both"), query.elo)
            parts.append(Part(pipeline, elos))
        points = asyncio.run(sweep(parts, position, query.rule, lambda answer: point_of(answer, statistics=True)))
    out = sweep_out(points, position, san=True)
    if as_json:
        return json.dumps(out, indent=2)
    names = [model.name for model in models]
    labels = names if len(names) > 1 else [f"{_varied(point, vary):g}" for point in points]
    wide = max(6, *(len(label) + 1 for label in labels))
    lines = [out["fen"], f"{out['turn']} to move, {out['status']}; {', '.join(names)}"]
    if not out["moves"]:
        return "\n".join(lines)
    lines += ["", f"{'%':<8}" + "".join(f"{label:>{wide}}" for label in labels)]
    lines += [
        f"{move['san']:<8}" + "".join(f"{100 * p:>{wide}.1f}" for p in move["probabilities"])
        for move in out["moves"][:top]
    ]
    rest = out["moves"][top:]
    if rest:
        totals = [sum(move["probabilities"][number] for move in rest) for number in range(len(points))]
        lines.append(f"{f'{len(rest)} more':<8}" + "".join(f"{100 * total:>{wide}.1f}" for total in totals))
    return "\n".join(lines)


def _numbers(ratings: str | None) -> list[float] | None:
    """The ratings of `--ratings`."""
    if ratings is None:
        return None
    try:
        return [float(rating) for rating in ratings.split(",")]
    except ValueError:
        raise click.BadParameter(f"{ratings!r} is not a list of ratings, such as 1100,1500,1900") from None


def _varied(point: Point, vary: str | None) -> float:
    """The rating that changes along the sweep, as the network was given it."""
    elo = point.out["elo"]
    return float(elo["opponent" if vary == Vary.OPPONENT.value else "self"])
