"""`movemask serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click

from movemask.errors import MovemaskError, require
from movemask.server.settings import Settings
from movemask.settings import PREFIX

#: The settings by the groups of the help, in the order in which it shows them.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Listening": ("host", "port", "workers", "tls_cert", "tls_key"),
    "Models": ("models_dir", "default_model", "provider", "runs", "max_batch", "engine"),
    "What is served": ("page", "mcp", "cors_origins", "trusted_hosts", "proxies", "root_path"),
    "Keys and limits of clients": (
        *("api_keys", "api_keys_file", "client_rate", "client_burst"),
        *("max_connections", "max_connections_per_address"),
    ),
    "Limits of requests": (
        *("max_queue", "max_positions", "max_moves", "max_body_bytes"),
        *("head_seconds", "body_seconds", "read_seconds", "keep_alive_seconds", "drain_seconds"),
    ),
    "Ledger": (
        *("database_url", "ledger_kinds", "ledger_share"),
        *("ledger_positions", "ledger_keep_days", "ledger_keep_positions"),
    ),
    "Logs": ("log_level", "log_format"),
}


class _Grouped(click.Command):
    """A command whose help shows its flags by the groups."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            option.name: record
            for option in self.get_params(context)
            if (record := option.get_help_record(context))
        }
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section("Other"):
            formatter.write_dl(list(records.values()))


def _settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Adds a flag for each field of Settings that the service uses, with the field's description as help."""
    for name, field in Settings.model_fields.items():
        if name in Settings.of_commands:
            continue
        flag, switch = _flag(name), field.annotation is bool
        command = click.option(
            f"{flag}/--no-{flag[2:]}" if switch else flag,
            name,
            default=None,
            help=f"{field.description} [env var: {_variable(name)}; default: {Settings.default_shown(name)}]",
            metavar=None if switch else _metavar(field.annotation),
        )(command)
    return command


def _metavar(annotation: Any) -> str:
    kinds = get_args(annotation) or (annotation,)
    return {int: "INTEGER", float: "NUMBER", Path: "PATH"}.get(kinds[0], "TEXT")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


@contextmanager
def _errors_name_flags(flags: Mapping[str, object]) -> Iterator[None]:
    """Names the flag in an error that begins with the variable of a setting.

    It does so if the setting was given by its flag.
    """
    try:
        yield
    except MovemaskError as error:
        variable, colon, fault = str(error).partition(":")
        for name, value in flags.items():
            if value is not None and variable == _variable(name):
                raise click.ClickException(f"{_flag(name)}{colon}{fault}") from None
        raise


@click.command(cls=_Grouped, short_help="Serve the HTTP API.")
@_settings_flags
def serve(**flags: Any) -> None:
    """Serve the HTTP API. Each flag is also an environment variable; if both are set, the flag wins."""
    require("serve", "movemask serve")
    with _errors_name_flags(flags):
        settings = Settings.read(**flags)
        from movemask.server.process.service import run_service

        run_service(settings)
