"""`movemask serve`, and what its operators need: `movemask keys`, `movemask positions delete`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from movemask.api.keys import Key, Scope, new_key, read_keys, write_keys
from movemask.api.routers.leakage import time_of
from movemask.cli.options import database_option
from movemask.errors import InvalidParameter, KeysError, SettingsError
from movemask.settings import PREFIX, Settings
from movemask.store.database import Database
from movemask.store.writer import delete


def _settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Adds a flag for each field of Settings, with the field's description as help."""
    for name, field in reversed(Settings.model_fields.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            help=f"{field.description} [env var: {PREFIX}{name.upper()}; default: {Settings.default_shown(name)}]",
            metavar=field.annotation.__name__.upper() if isinstance(field.annotation, type) else "TEXT",
        )(command)
    return command


@click.command()
@_settings_flags
def serve(**flags: str | None) -> None:
    """Serve the HTTP API. Each flag is also an environment variable; the flag wins."""
    settings = Settings.read(**flags)
    from movemask.api import server

    server.serve(settings)


_SCOPES = tuple(scope.value for scope in Scope)


def _file_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--file", type=click.Path(dir_okay=False, path_type=Path), help="The file. [default: MOVEMASK_API_KEYS_FILE]"
    )(command)


@click.group()
def keys() -> None:
    """Make, list and delete API keys."""


@keys.command("new")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(_SCOPES),
    multiple=True,
    default=("policy",),
    show_default=True,
    help="What the key may do; may be repeated.",
)
@_file_option
def make_key(name: str, scopes: tuple[str, ...], file: Path | None) -> None:
    """Make a key called NAME, print it, and add its hash to the file.

    The key is shown this once. A running service reads the file again within seconds. The service must be able to read
    the file, which is made for its owner alone.
    """
    file = _chosen(file)
    known = read_keys(file) if file.exists() else ()
    if name in {key.name for key in known}:
        raise KeysError(f"{file}: there is a key named {name}; delete it first, or choose another name")
    key, text = new_key(name, map(Scope, scopes))
    write_keys(file, [*known, key])
    click.echo(f"{key.name} ({', '.join(scopes)}) was added to {file}; its key, which is shown only now:", err=True)
    click.echo(text)


@keys.command("list")
@_file_option
def list_keys(file: Path | None) -> None:
    """List the names and scopes of the keys."""
    for key in read_keys(_chosen(file)):
        click.echo(f"{key.name:<24} {' '.join(scope for scope in _SCOPES if Scope(scope) in key.scopes)}")


@keys.command("delete")
@click.argument("name")
@_file_option
def delete_key(name: str, file: Path | None) -> None:
    """Delete the key called NAME from the file; a running service refuses it within seconds."""
    file = _chosen(file)
    known = read_keys(file)
    left: list[Key] = [key for key in known if key.name != name]
    if len(left) == len(known):
        raise KeysError(f"{file}: there is no key named {name}; there are {', '.join(key.name for key in known)}")
    write_keys(file, left)
    click.echo(f"{name} was deleted from {file}", err=True)


def _chosen(file: Path | None) -> Path:
    chosen = file or Settings.read().api_keys_file
    if chosen is None:
        raise SettingsError("name the file of keys with --file or MOVEMASK_API_KEYS_FILE")
    return chosen


@click.group()
def positions() -> None:
    """Delete positions that the audit keeps."""


@positions.command("delete")
@click.option("--before", metavar="TIME", help="Audited before: 30d, 24h, 2026-01-31, seconds since 1970.")
@click.option("--model", metavar="NAME", help="Answered by this model.")
@click.option("--all", "everything", is_flag=True, help="All positions of all models.")
@click.option("--figures", is_flag=True, help="With --model alone: its figures too.")
@click.option("--dry-run", is_flag=True, help="Count, and delete nothing.")
@database_option
def delete_positions(
    before: str | None, model: str | None, everything: bool, figures: bool, dry_run: bool, database_url: str | None
) -> None:
    """Delete single positions and entries of the lists of the worst, by time, by model or both.

    The service may be running. Figures hold no positions and stay, but with --figures.
    """
    if everything == (before is not None or model is not None):
        raise InvalidParameter("name what to delete: --before, --model or both; or --all")
    if figures and (model is None or before is not None):
        raise InvalidParameter("--figures: goes with --model alone, since figures of all time cannot be split")
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
    if deleted.traces:
        click.echo(
            "the database is being read, so its write-ahead log could not be emptied; it is written over in time",
            err=True,
        )
