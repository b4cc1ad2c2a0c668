"""`Client`: the HTTP API from Python, with the API's own models as answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx2

from movemask.api.schemas.answers import ErrorOut, MoveChosenOut, PolicyOut
from movemask.api.schemas.games import GamesOut
from movemask.api.schemas.leakage import AuditedOut, HistoryOut, LeakageFiguresOut, WorstOut
from movemask.api.schemas.models import ModelEntryOut, ModelsOut
from movemask.api.schemas.operations import ReadyOut, VersionOut
from movemask.api.schemas.swept import SweepOut
from movemask.api.schemas.verdict import VerdictOut
from movemask.client import calls
from movemask.client.calls import AuditNumbers, Call, PolicyOptions, Position, SweepOptions
from movemask.client.connection import URL, ClientSettings, Temperature, arguments, connection_errors, halves, too_many
from movemask.client.retries import error_of

T = TypeVar("T")


class Client:
    """A client of a service. Use it in a `with` block, or close it.

    Parameters
    ----------
    url : where the service is
    key : an API key, if the service asks for one
    timeout : seconds for connecting, and for each read and write
    retries : how often a request is sent again after a 429 or 503 with Retry-After, or if no connection could be made
    http : an `httpx2.Client` to use in place of one made here; it is not closed

    Every method raises ApiError for a problem that the service answered with, and ServiceUnreachable.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        http: httpx2.Client | None = None,
    ) -> None:
        settings = ClientSettings(url, key, timeout, retries)
        self._retries = settings.retries
        self._own = http is None
        self._http = http or httpx2.Client(**settings.http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._own:
            self._http.close()

    def policy(
        self, position: Position = "startpos", *, moves: Sequence[str] | None = None, **options: Unpack[PolicyOptions]
    ) -> PolicyOut:
        """The move distribution of a position: a board with its history, or a FEN or `startpos` and `moves` in UCI or
        SAN."""
        return self._run(calls.policy(position, moves, options))

    def move(
        self,
        position: Position = "startpos",
        *,
        moves: Sequence[str] | None = None,
        method: Literal["greedy", "sample"] = "greedy",
        seed: int | None = None,
        **options: Unpack[PolicyOptions],
    ) -> MoveChosenOut:
        """One move: the most probable, or a sample."""
        return self._run(calls.move(position, moves, method, seed, options))

    def policies(
        self, positions: Iterable[Position], **options: Unpack[PolicyOptions]
    ) -> Iterator[PolicyOut | ErrorOut]:
        """The distributions of any number of positions, in order, each as soon as it is there; an `ErrorOut` in place
        of one that is invalid. Requests are cut to what the service takes."""
        for part in calls.batches(positions):
            yield from self._lines(part, options)

    def sweep(
        self, position: Position = "startpos", *, moves: Sequence[str] | None = None, **options: Unpack[SweepOptions]
    ) -> SweepOut:
        """One position at many `ratings`, or by many `models`."""
        return self._run(calls.sweep(position, moves, options))

    def games(self, pgn: str, *, model: str | None = None, temperature: Temperature | None = None) -> GamesOut:
        """How probable the moves of whole games were."""
        return self._run(calls.games(pgn, model, temperature))

    def annotate(self, pgn: str, *, model: str | None = None, temperature: Temperature | None = None) -> str:
        """The games as a PGN with comments."""
        return self._run(calls.annotate(pgn, model, temperature))

    def audit(
        self, position: Position = "startpos", *, moves: Sequence[str] | None = None, **numbers: Unpack[AuditNumbers]
    ) -> VerdictOut:
        """What leaks in `logits` or `probabilities` with their `vocabulary`, or in a `policy`."""
        return self._run(calls.audit(position, moves, numbers))

    def leakage(self, **query: str | None) -> LeakageFiguresOut:
        """Leakage by model and kind; `model`, `by`, `since`, `until`."""
        return self._run(calls.leakage(**query))

    def leakage_history(self, **query: str | None) -> HistoryOut:
        """Leakage over time; `model`, `bucket`, `since`, `until`."""
        return self._run(calls.history(**query))

    def leakage_worst(self, **query: str | None) -> WorstOut:
        """The positions that leak most; `kind`, `limit`, `model`, `since`, `until`."""
        return self._run(calls.worst(**query))

    def leakage_positions(self, **query: str | None) -> Iterator[AuditedOut]:
        """All audited positions, newest first, page by page; `model`, `since`, `until`."""
        page = self._run(calls.positions(limit="1000", **query))
        yield from page.positions
        while page.next is not None:
            page = self._run(calls.positions(limit="1000", cursor=page.next, **query))
            yield from page.positions

    def models(self) -> ModelsOut:
        """The networks."""
        return self._run(calls.models())

    def model(self, name: str) -> ModelEntryOut:
        """One network, with its leakage so far."""
        return self._run(calls.model(name))

    def ready(self) -> ReadyOut:
        """The state of a service that can answer; otherwise ApiError."""
        return self._run(calls.ready())

    def version(self) -> VersionOut:
        """The version of the service."""
        return self._run(calls.version())

    def _run(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            with connection_errors():
                response = None
                try:
                    response = self._http.request(call.method, call.path, **arguments(call))
                except httpx2.ConnectError:
                    wait = self._retries.wait(attempt, None, {})
                    if wait is None:
                        raise
                else:
                    if response.is_success:
                        return call.read(response.content)
                    wait = self._retries.wait(attempt, response.status_code, response.headers)
                    if wait is None:
                        raise error_of(response.status_code, response.content)
            attempt += 1
            time.sleep(wait)

    def _lines(self, part: list[dict[str, Any]], options: PolicyOptions) -> Iterator[PolicyOut | ErrorOut]:
        call, attempt = calls.batch(part, options), 0
        while True:
            with connection_errors():
                try:
                    with self._http.stream(call.method, call.path, **arguments(call)) as response:
                        if response.is_success:
                            yield from map(calls.result, filter(None, response.iter_lines()))
                            return
                        error = error_of(response.status_code, response.read())
                        wait = self._retries.wait(attempt, response.status_code, response.headers)
                except httpx2.ConnectError:
                    wait = self._retries.wait(attempt, None, {})
                    if wait is None:
                        raise
                else:
                    if too_many(error, part):
                        break
                    if wait is None:
                        raise error
            attempt += 1
            time.sleep(wait)
        for half in halves(part):
            yield from self._lines(half, options)
