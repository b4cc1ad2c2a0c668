"""The commands of `movemask`: thin ones over the pipeline of the web service."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from movemask import __version__
from movemask.api import server
from movemask.cli.annotate import annotate
from movemask.cli.audit import audit
from movemask.cli.compare import compare
from movemask.cli.keys import keys
from movemask.cli.licences import licences
from movemask.cli.model_files import export_model, remove_model, rename_model
from movemask.cli.models import models, models_dir_option, own_models_dir, registry_of
from movemask.cli.positions import positions
from movemask.cli.predict import predict
from movemask.cli.uci import uci
from movemask.errors import ContractError, MovemaskError
from movemask.settings import PREFIX, Settings
from movemask.tasks import calibration
from movemask.tasks.model_files import copy


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
    from movemask.audit.streams import LineReader, TextSource

    own = None if dry_run else own_models_dir(models_dir)
    chosen = registry_of(models_dir).get(model)
    contract = Settings.read(models_dir=models_dir).model_folders.files(None)[chosen.name]
    if own is not None and own.is_dir() and not os.access(own, os.W_OK):
        raise ContractError(f"{own}: cannot be written; name a folder of your own with --models-dir")

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
    if own is not None:
        if contract.parent != own:
            contract = copy(contract, own)
            click.echo(f"copied to {own}, since the shipped models are not written to")
        calibration.write(contract, fitted, "standard input" if games == "-" else Path(games).name)
        click.echo(f"written to {contract}")


main.add_command(predict)
for command in (export_model, remove_model, rename_model):
    models.add_command(command)
main.add_command(models)
main.add_command(audit)
main.add_command(annotate)
main.add_command(compare)
main.add_command(uci)
main.add_command(keys)
main.add_command(positions)
main.add_command(licences)
