"""`movemask keys`: creates, lists and deletes API keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from movemask.errors import KeysError, SettingsError
from movemask.server.edge.keys import KeyScope, changed_keys, new_key, read_keys
from movemask.server.settings import Settings

_SCOPES = tuple(scope.value for scope in KeyScope)


def _file_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The file. [default: MOVEMASK_API_KEYS_FILE]",
    )(command)


@click.group()
def keys() -> None:
    """Create, list and delete API keys."""


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
    """Create a key NAME, print it, and add its hash to the file.

    The key is shown only this once. A running service accepts it after `movemask reload`. The service must be able to
    read the file, which is created so that only its owner can read it.
    """
    file = _chosen(file)
    key, text = new_key(name, map(KeyScope, scopes))
    with changed_keys(file) as keys:
        if name in {one.name for one in keys}:
            raise KeysError(
                f"{file}: there is a key named {name}; delete it first, or choose another name"
            )
        keys.append(key)
    click.echo(
        f"{key.name} ({', '.join(scopes)}) was added to {file}; this is the key, which is not shown again:",
        err=True,
    )
    click.echo(text)
    click.echo("a running service accepts it after `movemask reload`", err=True)


@keys.command("list")
@_file_option
def list_keys(file: Path | None) -> None:
    """List the names and scopes of the keys."""
    for key in read_keys(_chosen(file)):
        click.echo(
            f"{key.name:<24} {' '.join(scope for scope in _SCOPES if KeyScope(scope) in key.scopes)}"
        )


@keys.command("delete")
@click.argument("name")
@_file_option
def delete_key(name: str, file: Path | None) -> None:
    """Delete the key NAME from the file. A running service refuses it after `movemask reload`."""
    file = _chosen(file)
    with changed_keys(file) as keys:
        names = [key.name for key in keys]
        if name not in names:
            available = f"; available: {', '.join(names)}" if names else ""
            raise KeysError(f"{file}: there is no key named {name}{available}")
        del keys[names.index(name)]
    click.echo(
        f"{name} was deleted from {file}; to have a running service refuse it: `movemask reload`",
        err=True,
    )


def _chosen(file: Path | None) -> Path:
    chosen = file or Settings.read().api_keys_file
    if chosen is None:
        raise SettingsError("name the file of keys with --file or MOVEMASK_API_KEYS_FILE")
    return chosen
