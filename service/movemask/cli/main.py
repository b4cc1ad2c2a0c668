"""`movemask …`: the commands. A command's module is imported when the command is run."""

from __future__ import annotations

import io
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from threading import Timer
from typing import Any

import click

from movemask.errors import ASK_AS_CHESS960, MovemaskError
from movemask.version import __version__

_COMMANDS = (
    "annotate",
    "audit",
    "audit-diff",
    "calibrate",
    "keys",
    "mcp",
    "models",
    "positions",
    "predict",
    "reload",
    "serve",
    "uci",
    "vocabulary",
)

#: Modules of the commands that have no module of their own.
_MODULES = {"audit-diff": "audit", "calibrate": "models"}


class _Group(click.Group):
    """Imports a command when it is run. Without arguments, starts the engine if a program begins to speak UCI.

    Shows a MovemaskError or OSError in one line and exits with 1. Any other error is a bug and keeps its traceback.
    """

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args and (line := _first_line()).split() == ["uci"]:
            context.obj = [line]  # `movemask uci` reads this line first
            args = ["uci"]
        return super().parse_args(context, args)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"movemask.cli.{_MODULES.get(name, name)}"), name.replace("-", "_")
        )
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        wrong = not (name in _COMMANDS or name.startswith("-") or context.resilient_parsing)
        # click does not know the names of commands that are imported when they are run.
        if wrong and (near := get_close_matches(name, _COMMANDS, 1)):
            context.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        if isinstance(
            sys.stdout, io.TextIOWrapper
        ):  # a console or file of another encoding, as Windows has
            sys.stdout.reconfigure(errors="replace")
        try:
            return super().invoke(context)
        except MovemaskError as error:
            raise click.ClickException(
                str(error).replace(ASK_AS_CHESS960, "use --chess960")
            ) from None
        except OSError as error:
            if error.errno is None or isinstance(
                error, BrokenPipeError
            ):  # click exits quietly on a broken pipe
                raise
            _forget_output()
            names = [str(name) for name in (error.filename, error.filename2) if name is not None]
            raise click.ClickException(": ".join([*names, os.strerror(error.errno)])) from None


def _first_line() -> str:
    """Returns the first line of a pipe on standard input.

    Empty on a terminal. The following lines stay in the pipe.

    Fritz and some other GUIs start a program without arguments.
    """
    hint = Timer(
        2,
        click.echo,
        ["Waiting for UCI commands; `movemask --help` lists other commands."],
        {"err": True},
    )
    hint.daemon = True
    line = b""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return ""
        hint.start()
        while (
            len(line) < 64 and not line.endswith(b"\n") and (byte := os.read(sys.stdin.fileno(), 1))
        ):
            line += byte
    except (OSError, ValueError):  # standard input is closed, or is not a file of the system
        return ""
    finally:
        hint.cancel()
    return line.decode(errors="replace")


def _forget_output() -> None:
    """Drops unwritten output: Python would try to write it again at the end, and show a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="movemask")
def main() -> None:
    """Masked policy inference for chess networks, and an audit of what leaks without the mask."""
