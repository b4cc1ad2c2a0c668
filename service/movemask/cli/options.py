"""Parts of several commands: the flags `--models-dir` and `--database-url`, ratings, models, progress."""

from __future__ import annotations

import math
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from movemask.board.rating import MAX_RATING
from movemask.errors import SettingsError
from movemask.network.files import user_models
from movemask.settings import NetworkSettings

if TYPE_CHECKING:
    from movemask.audit.read import Skipped
    from movemask.network.registry import Registry


#: The flag `--models-dir`. The command gets `settings` that use this folder.
models_dir_option = click.option(
    "--models-dir",
    "settings",
    type=click.Path(path_type=Path),
    callback=lambda context, parameter, folder: NetworkSettings.read(models_dir=folder),
    help="Folder of the models. [default: your own and the shipped one]",
)

#: The flag `--database-url`.
database_option = click.option(
    "--database-url", metavar="URL", help="The database. [env var: MOVEMASK_DATABASE_URL]"
)


def registry_of(settings: NetworkSettings) -> Registry:
    """Returns the models of the settings' folders."""
    from movemask.network.onnx import provider_named
    from movemask.network.registry import load_registry

    return load_registry(
        settings.model_folders,
        settings.default_model,
        settings.threads,
        provider_named(settings.provider),
    )


def own_models_dir(settings: NetworkSettings) -> Path:
    """Returns the folder to write models to: the user's own by default.

    Raises SettingsError for the shipped folder.

    An update of the package would overwrite the shipped folder. In a checkout, `--models-dir models` is allowed.
    """
    folder = settings.models_dir or user_models()
    if folder.resolve().is_relative_to(Path(__file__).resolve().parents[1]):
        raise SettingsError(f"{folder}: the shipped models are never changed; name another folder")
    return folder


def show_progress(text: str) -> None:
    """Overwrites the progress line on a terminal; does nothing elsewhere."""
    if sys.stderr.isatty():
        click.echo(f"\r{text}", nl=False, err=True)


class Progress:
    """Shows the progress of a step that takes minutes, on stderr.

    Overwrites one line on a terminal. Elsewhere, such as in a log, prints a line if the last is `seconds` old.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds, self._due, self._width = seconds, time.monotonic() + seconds, 0

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            show_progress(text.ljust(self._width))
            self._width = len(text)
        elif time.monotonic() >= self._due:
            click.echo(text, err=True)
            self._due = time.monotonic() + self._seconds

    def clear(self) -> None:
        """Removes the line from a terminal, which may also show the output that follows."""
        show_progress(" " * self._width + "\r")


def show_skipped(skipped: Skipped) -> None:
    """Prints the skipped items on stderr: each reason with its count and up to five examples."""
    for reason, times in skipped.reasons.items():
        examples = skipped.examples_of(reason)[:5]
        click.echo(
            f"left out: {reason}: {times:,}{', such as' if len(examples) < times else ''}", err=True
        )
        for example in examples:
            click.echo(f"  {example}", err=True)


class Finite(click.FloatRange):
    """A number between bounds; `nan` and infinity are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        return (
            number if math.isfinite(number) else self.fail(f"{value!r} is not a number", param, ctx)
        )


RATING = Finite(0, MAX_RATING)
TEMPERATURE = Finite(min=0, min_open=True)

_NUMBER = re.compile(r"\d+(\.\d+)?")


class RatingsCommand(click.Command):
    """A command whose `--elo` takes two ratings, or one rating for both players."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = [
            word
            for arg in args
            for word in (arg.split("=", 1) if arg.startswith("--elo=") else [arg])
        ]
        if "--elo" in words[:-1]:
            at = words.index("--elo") + 1
            if not _NUMBER.fullmatch("".join(words[at + 1 : at + 2])):
                words.insert(at, words[at])
        return super().parse_args(context, words)
