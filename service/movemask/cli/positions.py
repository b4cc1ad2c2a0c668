"""`movemask positions`: deletes positions that the ledger keeps."""

from __future__ import annotations

import time

import click

from movemask.cli.options import database_option
from movemask.errors import InvalidParameter, require
from movemask.server.settings import Settings
from movemask.times import time_of


@click.group()
def positions() -> None:
    """Delete positions that the ledger keeps."""


@positions.command("delete", short_help="Delete stored positions by time, by model or both.")
@click.option(
    "--before", metavar="TIME", help="Answered before: 30d, 24h, 2026-01-31, @SECONDS since 1970."
)
@click.option("--model", metavar="NAME", help="Answered by this model.")
@click.option("--all", "everything", is_flag=True, help="All positions of all models.")
@click.option("--figures", is_flag=True, help="With only --model: delete its figures too.")
@click.option("--dry-run", is_flag=True, help="Count the positions, but delete nothing.")
@database_option
def delete_positions(
    before: str | None,
    model: str | None,
    everything: bool,
    figures: bool,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Delete stored positions by time, by model or both, including those in the lists of worst positions.

    The service may be running. Figures contain no positions, and stay unless you give --figures.
    """
    require("serve", "movemask positions delete")
    from movemask.server.ledger.database import Database
    from movemask.server.ledger.ledger import delete

    if everything == (before is not None or model is not None):
        raise InvalidParameter("name what to delete: --before, --model or both; or --all")
    if figures and (model is None or before is not None):
        raise InvalidParameter(
            "--figures: goes with --model alone, since figures of all time cannot be split"
        )
    moment = time_of("--before", before, time.time())
    database = Database(Settings.read(database_url=database_url).database_url)
    try:
        database.open()
        deleted = delete(database, before=moment, model=model, figures=figures, only_count=dry_run)
    finally:
        database.close()
    verb = "would be deleted" if dry_run else "deleted"
    click.echo(
        f"{verb}: {deleted.positions} positions, {deleted.worst} of the worst, {deleted.figures} rows of figures"
    )
