# Written by scripts/twin from aio.py.
"""`Client`: the HTTP API from Python, with the API's own models as answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar, Unpack

import httpx2
from pydantic import BaseModel

from movemask.api.schemas.answers import ErrorOut, GamesOut, MoveChosenOut, PolicyOut, SweepOut, VerdictOut
from movemask.api.schemas.reports import AuditedOut, LeakageFiguresOut, ModelsOut, PositionsOut, WorstOut
from movemask.client import wire
from movemask.errors import ApiError

M = TypeVar("M", bound=BaseModel)


class Client:
    """A client of a service: `with Client(url) as client: …`, or call `close` at the end.

    Parameters
    ----------
    url : where the service is
    key : an API key, if the service asks for one
    timeout : seconds for connecting, and for each read and write
    retries : how often a request is sent again after a 429 or 503 with Retry-After
    http : an `httpx2.Client` to use in place of one made here; it is not closed

    A position is a board with its history, a FEN or `startpos`; `moves`, in UCI or SAN, are played from it, or from the
    start position if there is none. Every method raises ApiError for a problem that the service answered with, such as
    a position that was left out or is None, and ServiceUnreachable.
    """

    def __init__(
        self,
        url: str = wire.URL,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        http: httpx2.Client | None = None,
    ) -> None:
        self._retries = retries
        self._own = http is None
        self._http = http or httpx2.Client(**wire.http_options(url, key, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._own:
            self._http.close()

    def policy(self, position: wire.Given = ..., **options: Unpack[wire.PositionOptions]) -> PolicyOut:
        """The move distribution of a position."""
        return self._ask("/v1/policy", PolicyOut, wire.fields_of(position, options))

    def move(self, position: wire.Given = ..., **options: Unpack[wire.MoveOptions]) -> MoveChosenOut:
        """One move: the most probable, or with `method="sample"` one drawn, the same for the same `seed`."""
        return self._ask("/v1/move", MoveChosenOut, wire.fields_of(position, options))

    def policies(
        self, positions: Iterable[wire.PositionLike], **options: Unpack[wire.PolicyOptions]
    ) -> Iterator[PolicyOut | ErrorOut]:
        """The distributions of any number of positions, in order, each as soon as it is there; an `ErrorOut` in place
        of one that is invalid. Requests are cut to what the service takes."""
        for part in wire.batches(positions):
            yield from self._lines(part, options)

    def sweep(self, position: wire.Given = ..., **options: Unpack[wire.SweepOptions]) -> SweepOut:
        """One position at many `ratings`, or by many `models`."""
        return self._ask("/v1/policy/sweep", SweepOut, wire.fields_of(position, options))

    def games(self, pgn: str, **options: Unpack[wire.GamesOptions]) -> GamesOut:
        """How probable the moves of whole games were."""
        return self._ask("/v1/games", GamesOut, {"pgn": pgn} | wire.fields_of(..., options))

    def annotate(self, pgn: str, **options: Unpack[wire.GamesOptions]) -> str:
        """The games as a PGN with comments."""
        body = {"pgn": pgn} | wire.fields_of(..., options)
        with self._answered("/v1/games", body, accept=wire.PGN) as response:
            content = response.read()
        return content.decode()

    def audit(self, position: wire.Given = ..., **options: Unpack[wire.AuditOptions]) -> VerdictOut:
        """What leaks in `logits` or `probabilities` with their `vocabulary`, or in a `policy`."""
        return self._ask("/v1/audit", VerdictOut, wire.fields_of(position, options))

    def leakage(self, **query: str | None) -> LeakageFiguresOut:
        """Leakage by model and kind; `model`, `by`, `since`, `until`."""
        return self._ask("/v1/leakage", LeakageFiguresOut, query=query)

    def leakage_worst(self, **query: str | None) -> WorstOut:
        """The positions that leak most; `kind`, `limit`, `model`, `since`, `until`."""
        return self._ask("/v1/leakage/worst", WorstOut, query=query)

    def leakage_positions(self, **query: str | None) -> Iterator[AuditedOut]:
        """All audited positions, newest first, page by page; `model`, `since`, `until`."""
        cursor = None
        while True:
            page = self._ask("/v1/leakage/positions", PositionsOut, query={**query, "limit": "1000", "cursor": cursor})
            yield from page.positions
            cursor = page.next
            if cursor is None:
                return

    def models(self) -> ModelsOut:
        """The networks."""
        return self._ask("/v1/models", ModelsOut)

    def _ask(
        self, path: str, answer: type[M], body: Mapping[str, Any] | None = None, *, query: Mapping[str, Any] = {}
    ) -> M:
        with self._answered(path, body, query) as response:
            content = response.read()
        return answer.model_validate_json(content)

    def _lines(self, part: list[dict[str, Any]], options: wire.PolicyOptions) -> Iterator[PolicyOut | ErrorOut]:
        """The results of a batch; of its halves if the service takes less at once."""
        body = {"positions": part} | wire.fields_of(..., options)
        try:
            with self._answered("/v1/policy/batch", body, accept=wire.NDJSON) as response:
                for line in response.iter_lines():
                    if line:
                        yield wire.RESULT.validate_json(line)
            return
        except ApiError as error:
            if error.name not in ("limit-exceeded", "body-too-large") or len(part) == 1:
                raise
        for half in (part[: len(part) // 2], part[len(part) // 2 :]):
            yield from self._lines(half, options)

    @contextmanager
    def _answered(
        self, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any] = {}, accept: str = wire.JSON
    ) -> Iterator[httpx2.Response]:
        """A successful response, to be read in the block; the request is sent again as long as that may help."""
        attempt, sent = 0, wire.request_options(body, query, accept)
        while True:
            try:
                with self._http.stream("GET" if body is None else "POST", path, **sent) as response:
                    if response.is_success:
                        yield response
                        return
                    problem = wire.error_of(response.status_code, response.read())
            except httpx2.TransportError as error:
                raise wire.unreachable(error) from error
            wait = wire.seconds_to_wait(response, attempt, self._retries)
            if wait is None:
                raise problem
            attempt += 1
            time.sleep(wait)
