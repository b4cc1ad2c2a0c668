"""`movemask uci`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from movemask.board.rating import MAX_RATING
from movemask.cli.options import Finite, models_dir_option
from movemask.errors import ApiError, InvalidResponse, ServiceUnreachable, UnknownModel, require
from movemask.network.files import shipped_models
from movemask.settings import NetworkSettings
from movemask.uci.engine import PASSING, Engine
from movemask.uci.options import MAX_THREADS, Options, Strengths

if TYPE_CHECKING:
    import chess

    from movemask.client.http import Client
    from movemask.local.distribution import Policy
    from movemask.schemas.answers import ErrorOut, PolicyOut
    from movemask.uci.search import Source


@click.command(short_help="Run a chess engine that speaks UCI.")
@click.option(
    "--model", help="Name of the model; otherwise the default. The option Model changes it."
)
@models_dir_option
@click.option(
    "--url",
    help="Ask a service, such as http://127.0.0.1:8000, instead of a network in this process.",
)
@click.option(
    "--key-file",
    type=click.File(),
    help="With --url: file whose first line is the service's API key.",
)
@click.option(
    "--elo",
    type=click.IntRange(0, MAX_RATING),
    default=0,
    help="Rating to play at; 0: the network's default.",
)
@click.option(
    "--temperature", type=Finite(0, 100), default=1.0, show_default=True,
    help="1 draws moves as players of that rating would; 0 plays the most probable move.",
)  # fmt: skip
@click.pass_obj
def uci(
    lines_read: list[str] | None,
    model: str | None,
    settings: NetworkSettings,
    url: str | None,
    key_file: TextIO | None,
    elo: int,
    temperature: float,
) -> None:
    """Run a chess engine that speaks UCI on standard input and output, for GUIs, tournaments and lichess-bot.

    The GUI can set more options. `--elo` and `--temperature` set the initial values of two of them. With a temperature
    of 1 the engine plays as people of that rating do. UCI_LimitStrength and UCI_Elo set a strength that was measured in
    games.

    `movemask` without a command does the same if the first line of its standard input is `uci`.
    """
    models, open_source = (
        _remote(url, key_file.readline().strip() if key_file else None)
        if url is not None
        else _local(settings)
    )
    if model is not None and models and model not in models:
        raise click.BadParameter(
            f"no model {model!r}; available: {', '.join(models)}", param_hint="--model"
        )
    options = Options(
        model or next(iter(models), ""),
        self_elo=elo,
        temperature=temperature,
        threads=min(settings.threads, MAX_THREADS),
        models=dict(sorted(models.items())),
    )
    with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
        spare = None if url is None else _shipped
        engine = Engine(open_source, options, sys.stdout, spare, absent=not models)
        engine.run(chain(lines_read or (), lines))


#: Each model's range of UCI_Elo by name, the default model first; and a function that opens a model. There are no
#: models if a service does not answer.
_Models = tuple[dict[str, Strengths], "Callable[[str | None, int], Source]"]


def _local(settings: NetworkSettings) -> _Models:
    """Returns the models of the folders."""

    def opened(name: str | None, threads: int) -> Source:
        from movemask.local.network import (
            load,  # imports onnxruntime, which `uciok` should not wait for
        )

        return load(name, models_dir=settings.models_dir, threads=threads)

    ranked = settings.model_folders.ranked(settings.default_model)
    return {name: Strengths.of(_unchecked(file)) for name, file in ranked.items()}, opened


def _shipped() -> Source:
    """Returns the shipped network, which plays when a service does not answer."""
    from movemask.local.network import load

    return load(models_dir=shipped_models(), threads=1)


def _unchecked(contract: Path) -> dict[str, Any]:
    """Returns a contract as read from its TOML, unchecked, so that `uciok` need not wait.

    Empty if it cannot be read.

    Opening the model later reports the error.
    """
    try:
        return tomllib.loads(contract.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _remote(url: str, key: str | None) -> _Models:
    """Returns the models of a service."""
    require("client", "movemask uci --url")
    from movemask.client.http import Client

    client = Client(url, key=key, retries=0)  # the engine asks again itself, while the clock allows
    click.get_current_context().call_on_close(client.close)

    def opened(name: str | None, threads: int) -> Source:
        return RemoteSource(client, name)  # the service chooses its threads

    try:
        listed = client.models().models
    except (ServiceUnreachable, ApiError) as error:
        if isinstance(error, ApiError) and error.status not in PASSING:
            raise
        return {}, opened
    served = sorted(
        (model for model in listed if model.served),
        key=lambda model: (not model.default, model.name),
    )
    if not served:
        raise UnknownModel(f"{url} serves no model; GET {url}/v1/models says why")
    if odd := [model.name for model in served if not model.name.isprintable() or not model.name]:
        raise InvalidResponse(f"{url}: {odd[0]!r:.60} is not a valid name of a model")
    try:
        models = {
            model.name: Strengths.of({**(model.contract or {}), "card": model.card or {}})
            for model in served
        }
    except OverflowError as error:  # an infinite rating
        raise InvalidResponse(f"{url}: an impossible contract: {error}") from None
    return models, opened


class RemoteSource:
    """The engine's policies from a remote service. Raises ApiError, ServiceUnreachable and InvalidResponse."""

    def __init__(self, client: Client, model: str | None) -> None:
        self._client = client
        self._model = model

    def policies(
        self, boards: Sequence[chess.Board], *, elo: tuple[float, float] | None
    ) -> list[Policy]:
        """Like `Source.policies`."""
        answers = self._client.policies(boards, model=self._model, elo=elo)
        return [_policy_of(board, answer) for board, answer in zip(boards, answers, strict=True)]


def _policy_of(board: chess.Board, answer: PolicyOut | ErrorOut) -> Policy:
    from movemask.client.responses import error_of_problem
    from movemask.local.distribution import Policy, Value
    from movemask.schemas.answers import ErrorOut

    if isinstance(answer, ErrorOut):
        raise error_of_problem(answer.error)
    value, leakage = answer.value, answer.leakage
    try:
        moves = {board.parse_uci(move.uci): move.probability for move in answer.moves}
    except ValueError as error:
        raise InvalidResponse(
            f"the service answered with a move that is not legal: {error}"
        ) from None
    return Policy(
        board,
        answer.model.name,
        moves,
        None if value is None else Value(value.win, value.draw, value.loss, value.score),
        None if leakage is None else leakage.raw,
        None if leakage is None else leakage.multiplied,
        None if answer.elo is None else (answer.elo.own, answer.elo.opponent),
        tuple(answer.ignored),
    )
