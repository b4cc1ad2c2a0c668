"""`movemask migrate`."""

from __future__ import annotations

import click

from movemask.cli.options import database_option
from movemask.errors import LedgerError, require
from movemask.server.settings import Settings


@click.command()
@click.option("--check", is_flag=True, help="Change nothing, and exit with 1 if a start would migrate the tables.")
@database_option
def migrate(check: bool, database_url: str | None) -> None:
    """Bring the audit's tables up to date, as each start of the service does.

    A SQLite file is first copied to FILE.version-N. If several processes start, one migrates and the others wait.
    """
    require("serve", "movemask migrate")
    from movemask.server.ledger.database import Database
    from movemask.server.ledger.tables import VERSION

    database = Database(Settings.read(database_url=database_url).database_url)
    try:
        version = database.version()
        if check and version not in (None, VERSION):
            raise LedgerError(f"{database.shown}: a start would migrate from version {version} to {VERSION}")
        if not check:
            database.open()
    finally:
        database.close()
    made = "no tables yet, a start makes them" if check else f"tables of version {VERSION} were made"
    done = made if version is None else f"tables of version {VERSION}, nothing to migrate"
    click.echo(f"{database.shown}: {database.migrated or done}")
