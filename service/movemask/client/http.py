"""`AsyncClient` and `Client`: the HTTP API from Python, with the API's own models as answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from movemask.api.schemas.answers import ErrorOut, GamesOut, MoveChosenOut, PolicyOut, SweepOut, VerdictOut
from movemask.api.schemas.reports import AuditedOut, LeakageFiguresOut, ModelsOut, PositionsOut, VocabularyOut, WorstOut
from movemask.client import wire
from movemask.errors import ApiError, ServiceUnreachable, require

require("client", "movemask.Client")  # names the extra; the import below would only name the package

import httpx2  # noqa: E402

M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")

_URL = "http://127.0.0.1:8000"
_JSON = "application/json"

#: Reads a line of a streamed batch.
_RESULT: TypeAdapter[PolicyOut | ErrorOut] = TypeAdapter(PolicyOut | ErrorOut)

#: Most seconds to wait before a request is sent again, whatever Retry-After says.
_MOST_SECONDS = 30.0


class AsyncClient:
    """`Client` for asyncio: `async with AsyncClient(url) as client: …`, or call `aclose` at the end.

    Its parameters are those of `Client`, but `http` is an `httpx2.AsyncClient`; its methods are to be awaited.
    """

    def __init__(
        self,
        url: str = _URL,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._retries = retries
        self._own = http is None
        self._http = http or httpx2.AsyncClient(base_url=url, headers=wire.headers(key), timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._own:
            await self._http.aclose()

    async def policy(self, position: wire.Given = ..., **options: Unpack[wire.PositionOptions]) -> PolicyOut:
        """The move distribution of a position."""
        return await self._ask("/v1/policy", PolicyOut, wire.fields_of(position, options))

    async def move(self, position: wire.Given = ..., **options: Unpack[wire.MoveOptions]) -> MoveChosenOut:
        """One move: the most probable, or with `method="sample"` one drawn, the same for the same `seed`."""
        return await self._ask("/v1/move", MoveChosenOut, wire.fields_of(position, options))

    async def policies(
        self, positions: Iterable[wire.PositionLike], **options: Unpack[wire.PolicyOptions]
    ) -> AsyncGenerator[PolicyOut | ErrorOut, None]:
        """The distributions of any number of positions, in order, each as soon as it is there; an `ErrorOut` in place
        of one that is invalid. Requests are cut to what the service takes."""
        shared = wire.fields_of(..., options)
        for batch in wire.batches(positions):
            parts = [batch]
            while parts:
                part = parts.pop(0)
                body = {"positions": part} | shared
                try:
                    async with self._answered("/v1/policy/batch", body, accept="application/x-ndjson") as response:
                        async for line in response.aiter_lines():
                            if line:
                                yield _RESULT.validate_json(line)
                except ApiError as error:
                    if error.name not in ("limit-exceeded", "body-too-large") or len(part) == 1:
                        raise
                    parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]

    async def sweep(self, position: wire.Given = ..., **options: Unpack[wire.SweepOptions]) -> SweepOut:
        """One position at many `ratings`, or by many `models`."""
        return await self._ask("/v1/policy/sweep", SweepOut, wire.fields_of(position, options))

    async def games(self, pgn: str, **options: Unpack[wire.GamesOptions]) -> GamesOut:
        """How probable the moves of whole games were."""
        return await self._ask("/v1/games", GamesOut, {"pgn": pgn} | wire.fields_of(..., options))

    async def annotate(self, pgn: str, **options: Unpack[wire.GamesOptions]) -> str:
        """The games as a PGN with comments."""
        body = {"pgn": pgn} | wire.fields_of(..., options)
        async with self._answered("/v1/games", body, accept="application/x-chess-pgn") as response:
            return (await response.aread()).decode()

    async def audit(self, position: wire.Given = ..., **options: Unpack[wire.AuditOptions]) -> VerdictOut:
        """What leaks in `logits` or `probabilities` with their `vocabulary`, or in a `policy`."""
        return await self._ask("/v1/audit", VerdictOut, wire.fields_of(position, options))

    async def leakage(self, /, **query: str | None) -> LeakageFiguresOut:
        """Leakage by model and kind; `model`, `by`, `since`, `until`."""
        return await self._ask("/v1/leakage", LeakageFiguresOut, query=query)

    async def leakage_worst(self, /, **query: str | None) -> WorstOut:
        """The positions that leak most; `kind`, `limit`, `model`, `since`, `until`."""
        return await self._ask("/v1/leakage/worst", WorstOut, query=query)

    async def leakage_positions(self, /, **query: str | None) -> AsyncGenerator[AuditedOut, None]:
        """All audited positions, newest first, page by page; `model`, `since`, `until`."""
        query |= {"limit": "1000", "cursor": None}
        while True:
            page = await self._ask("/v1/leakage/positions", PositionsOut, query=query)
            for position in page.positions:
                yield position
            if page.next is None:
                return
            query["cursor"] = page.next

    async def models(self) -> ModelsOut:
        """The networks."""
        return await self._ask("/v1/models", ModelsOut)

    async def vocabulary(self, name: str) -> VocabularyOut:
        """The move of each slot of a vocabulary or a model."""
        return await self._ask(f"/v1/vocabularies/{quote(name, safe='')}", VocabularyOut)

    async def _ask(
        self, path: str, answer: type[M], body: Mapping[str, Any] | None = None, *, query: Mapping[str, Any] = {}
    ) -> M:
        async with self._answered(path, body, query) as response:
            return answer.model_validate_json(await response.aread())

    @asynccontextmanager
    async def _answered(
        self, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any] = {}, accept: str = _JSON
    ) -> AsyncIterator[httpx2.Response]:
        """A successful response, to be read in the block. Every request may be sent again, since none changes anything;
        without a Retry-After, as of a model that failed its check, waiting does not help."""
        sent: dict[str, Any] = {"params": {name: value for name, value in query.items() if value is not None}}
        # As Python writes it: NaN and infinity reach the service, which has an answer to them.
        content = None if body is None else json.dumps(body).encode()
        sent |= {"headers": {"Accept": accept, "Content-Type": _JSON}, "content": content}
        for left in range(self._retries, -1, -1):
            try:
                async with self._stream("GET" if body is None else "POST", path, **sent) as response:
                    if response.is_success:
                        yield response
                        return
                    problem = wire.error_of(response.status_code, await response.aread())
            except httpx2.TransportError as error:
                where = error.request.url if error._request is not None else "the service"
                raise ServiceUnreachable(f"{where}: {type(error).__name__}: {error}") from error
            delay = response.headers.get("Retry-After", "")
            if not left or response.status_code not in (429, 503) or not delay.isdigit():
                raise problem
            await self._sleep(min(float(delay), _MOST_SECONDS))

    def _stream(self, method: str, path: str, **sent: Any) -> AbstractAsyncContextManager[httpx2.Response]:
        return self._http.stream(method, path, **sent)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Blocking(AsyncClient):
    """An `AsyncClient` on an `httpx2.Client`: its coroutines block, and never wait for an event loop."""

    def __init__(self, http: httpx2.Client, retries: int) -> None:
        self._blocking, self._retries = http, retries

    @asynccontextmanager
    async def _stream(self, method: str, path: str, **sent: Any) -> AsyncIterator[httpx2.Response]:
        with self._blocking.stream(method, path, **sent) as response:
            yield cast(httpx2.Response, _Response(response))

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Response:
    """A response of an `httpx2.Client`, to be read as one of an `httpx2.AsyncClient`."""

    def __init__(self, response: httpx2.Response) -> None:
        self.is_success, self.status_code, self.headers = response.is_success, response.status_code, response.headers
        self._response = response

    async def aread(self) -> bytes:
        return self._response.read()

    async def aiter_lines(self) -> AsyncIterator[str]:
        for line in self._response.iter_lines():
            yield line


def _result(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine of `_Blocking`, which needs no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits for an event loop")


def _answer(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    @wraps(method)
    def call(client: Client, /, *args: P.args, **options: P.kwargs) -> T:
        return _result(method(client._calls, *args, **options))

    return call


def _answers(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    @wraps(method)
    def call(client: Client, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        answers = method(client._calls, *args, **options)
        try:
            while True:
                yield _result(answers.__anext__())
        except StopAsyncIteration:
            return
        finally:
            _result(answers.aclose())

    return call


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
        url: str = _URL,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        http: httpx2.Client | None = None,
    ) -> None:
        self._own = http is None
        self._http = http or httpx2.Client(base_url=url, headers=wire.headers(key), timeout=timeout)
        self._calls = _Blocking(self._http, retries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._own:
            self._http.close()

    policy = _answer(AsyncClient.policy)
    move = _answer(AsyncClient.move)
    policies = _answers(AsyncClient.policies)
    sweep = _answer(AsyncClient.sweep)
    games = _answer(AsyncClient.games)
    annotate = _answer(AsyncClient.annotate)
    audit = _answer(AsyncClient.audit)
    leakage = _answer(AsyncClient.leakage)
    leakage_worst = _answer(AsyncClient.leakage_worst)
    leakage_positions = _answers(AsyncClient.leakage_positions)
    models = _answer(AsyncClient.models)
    vocabulary = _answer(AsyncClient.vocabulary)
