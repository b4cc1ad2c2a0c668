"""`movemask serve`."""

from __future__ import annotations

from collections.abc import Callable

import click

from movemask.errors import require
from movemask.server.settings import Settings
from movemask.settings import PREFIX


def _settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Adds a flag for each field of Settings that the service uses, with the field's description as help."""
    for name, field in reversed(Settings.model_fields.items()):
        if name in Settings.of_commands:
            continue
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            help=f"{field.description} [env var: {PREFIX}{name.upper()}; default: {Settings.default_shown(name)}]",
            metavar=field.annotation.__name__.upper()
            if isinstance(field.annotation, type)
            else "TEXT",
        )(command)
    return command


@click.command(short_help="Serve the HTTP API.")
@_settings_flags
def serve(**flags: str | None) -> None:
    """Serve the HTTP API. Each flag is also an environment variable; if both are set, the flag wins."""
    require("serve", "movemask serve")
    settings = Settings.read(**flags)
    from movemask.server.process.service import run_service

    run_service(settings)
