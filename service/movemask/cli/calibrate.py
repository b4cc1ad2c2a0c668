"""`movemask calibrate`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from movemask.cli.options import models_dir_option, own_models_dir, registry_of, show_progress
from movemask.errors import ContractError
from movemask.settings import Settings
from movemask.tasks import calibration
from movemask.tasks.model_files import copy


@click.command()
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
    from movemask.audit.read import TextSource

    own = None if dry_run else own_models_dir(models_dir)
    chosen = registry_of(models_dir).get(model)
    contract = Settings.read(models_dir=models_dir).model_folders.files(None)[chosen.name]
    if own is not None and own.is_dir() and not os.access(own, os.W_OK):
        raise ContractError(f"{own}: cannot be written; name a folder of your own with --models-dir")

    def progress(positions: int) -> None:
        show_progress(f"{positions} positions")

    with TextSource(games) as source:
        fitted = calibration.fitted(chosen, source, first_ply=first_ply, limit=limit, progress=progress)
    show_progress("\n")
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
