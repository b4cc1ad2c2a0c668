"""`movemask serve | predict | calibrate | models … | keys … | audit`: thin commands over the service's pipeline."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from movemask import __version__
from movemask.api import server
from movemask.api.schemas.answers import policy_out
from movemask.api.schemas.requests import Include
from movemask.board.elo import Elo
from movemask.board.move_codes import moves_of
from movemask.cli.audit import audit
from movemask.cli.compare import compare
from movemask.cli.keys import keys
from movemask.cli.models import models, models_dir_option, own_models_dir, registry_of
from movemask.errors import ContractError, MovemaskError
from movemask.inference.model import Model
from movemask.leakage.reasons import explained
from movemask.pipeline import Answer, Pipeline, Query
from movemask.policy import CALIBRATED, Normalizer, Rule
from movemask.settings import PREFIX, Settings
from movemask.tasks import calibration

_BAR = 30  # characters of a probability of 1
_SHOWN_ILLEGAL = 0.001  # least probability of an illegal move to show it


class _Group(click.Group):
    """Shows MovemaskError and OSError in one line and exits with 1; anything else is a bug and keeps its traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MovemaskError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            if error.errno is None or isinstance(error, BrokenPipeError):  # click exits quietly on a broken pipe
                raise
            names = [str(name) for name in (error.filename, error.filename2) if name is not None]
            raise click.ClickException(": ".join([*names, os.strerror(error.errno)])) from None


def _settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Adds a flag for each field of Settings, with the field's description as help."""
    for name, field in reversed(Settings.model_fields.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            help=f"{field.description} [env var: {PREFIX}{name.upper()}; default: {Settings.default_shown(name)}]",
            metavar=getattr(field.annotation, "__name__", "text").upper(),
        )(command)
    return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="movemask")
def main() -> None:
    """Masked policy inference for chess networks, and an audit of what leaks without the mask."""


@main.command()
@_settings_flags
def serve(**flags: str | None) -> None:
    """Serve the HTTP API. Each flag is also an environment variable; the flag wins."""
    server.serve(Settings.read(**flags))


@main.command()
@click.argument("fen", required=False)
@click.option(
    "--moves", default="", help="UCI moves played from FEN (the start position if none), separated by spaces."
)
@click.option(
    "--elo", type=float, nargs=2, metavar="SELF OPPONENT", help="Ratings of the side to move and its opponent."
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
@click.option("--model", help="Name of the model; the default if left out.")
@models_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON, as POST /v1/policy gives it.")
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
    model: str | None,
    models_dir: Path | None,
    as_json: bool,
) -> None:
    """Show the move distribution of FEN (the start position if left out)."""
    registry = registry_of(models_dir)
    rule = Rule(Normalizer(normalizer), alpha, CALIBRATED if calibrated else temperature, top_k, top_p, min_p)
    query = Query(fen, tuple(moves.split()), chess960, Elo(*elo) if elo else None, rule)
    include: list[Include] = ["san", "logit", "statistics"]

    def write(answer: Answer) -> str:
        return json.dumps(policy_out(answer, include), indent=2) if as_json else _table(answer, top)

    click.echo(asyncio.run(_evaluate(registry.get(model), query, write)))


@main.command()
@click.argument("games", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--model", help="Name of the model; the default if left out.")
@models_dir_option
@click.option(
    "--first-ply",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="First ply of a game to take; skips the opening.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Most positions to take.")
@click.option("--dry-run", is_flag=True, help="Show the fit, and write nothing.")
def calibrate(
    games: str, model: str | None, models_dir: Path | None, first_ply: int, limit: int | None, dry_run: bool
) -> None:
    """Fit a model's temperature to the moves of GAMES and write it to its contract.

    GAMES is a PGN, plain or compressed (.gz, .zst), or - for standard input. A fit is refused, and nothing written,
    with fewer than 500 moves, at a bound of the search, or with a standard error above a tenth of the temperature.
    """
    from movemask.tasks.bulk.streams import LineReader, TextSource

    folder = Settings.read(models_dir=models_dir).models_dir if dry_run else own_models_dir(models_dir)
    if not dry_run and folder.is_dir() and not os.access(folder, os.W_OK):
        raise ContractError(f"{folder}: cannot be written; name a folder of your own with --models-dir")
    chosen = registry_of(models_dir).get(model)

    def show_progress(positions: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{positions} positions", nl=False, err=True)

    with TextSource(games) as source:
        fitted = calibration.fitted(
            chosen, LineReader(source), first_ply=first_ply, limit=limit, progress=show_progress
        )
    if sys.stderr.isatty():
        click.echo(err=True)
    for reason in fitted.left_out[:10]:
        click.echo(f"left out: {reason}", err=True)
    if len(fitted.left_out) > 10:
        click.echo(f"left out: {len(fitted.left_out) - 10} games more", err=True)
    fit = fitted.calibration
    click.echo(f"{chosen.name}: temperature {fit.temperature:.4f} ± {fit.standard_error:.4f} (standard error)")
    click.echo(
        f"cross-entropy {fit.cross_entropy_before:.4f} at temperature 1, {fit.cross_entropy_after:.4f} at the fitted"
    )
    click.echo(f"from {fitted.positions} moves of {fitted.games} games; {len(fitted.left_out)} games left out")
    if fitted.refusal:
        raise ContractError(f"{chosen.name}: the fit is refused: {fitted.refusal}")
    if not dry_run:
        contract = folder / f"{chosen.name}.toml"
        calibration.write(contract, fitted, "standard input" if games == "-" else Path(games).name)
        click.echo(f"written to {contract}")


main.add_command(models)
main.add_command(audit)
main.add_command(compare)
main.add_command(keys)


async def _evaluate(model: Model, query: Query, write: Callable[[Answer], str]) -> str:
    """`write(answer)` for a query, through the pipeline of the web service; nothing is recorded."""
    pipeline = Pipeline(model, lambda _: None, max_batch=1, max_waiting=1)
    try:
        (outcome,) = await pipeline.evaluate([query], write)
    finally:
        pipeline.close()
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
    ((illegal, _),) = explained(heavy, batch.boards, model.vocabulary, [batch.codes], named=3)
    lines += [f"  illegal {move.uci:<6} {100 * move.probability:6.2f} % of plain softmax" for move in illegal]
    return "\n".join(lines)
