"""`Client` and `AsyncClient`: clients of a service. Answers are the models of `schemas`."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import wraps
from math import inf
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack
from urllib.parse import quote

from pydantic import TypeAdapter

from movemask.client import options
from movemask.client.fields import batches, body_of, fields_of, query_of, quoted
from movemask.errors import ApiError, InvalidParameter, InvalidResponse, ServiceUnreachable, require
from movemask.schemas.answers import (
    ErrorOut,
    GamesOut,
    JudgementOut,
    MoveChosenOut,
    PolicyOut,
    SweepOut,
)
from movemask.schemas.figures import LeakageFiguresOut, PositionsOut, StoredPositionOut, WorstOut
from movemask.schemas.operations import ModelsOut, VocabularyOut

# Its message names the extra. An ImportError would only name httpx2.
require("client", "movemask.Client")

import httpx2  # noqa: E402

from movemask.client.connection import Address, Connection, Response, headers_of  # noqa: E402
from movemask.client.responses import (  # noqa: E402
    MOST,
    Lines,
    content_of,
    error_of,
    read_json,
    seconds_to_retry,
    seconds_to_wait,
    text_of,
)

P = ParamSpec("P")
T = TypeVar("T")

_URL = "http://127.0.0.1:8000"
_JSON, _NDJSON, _PGN = "application/json", "application/x-ndjson", "application/x-chess-pgn"

#: The shape of a line of a streamed batch.
_RESULT: TypeAdapter[PolicyOut | ErrorOut] = TypeAdapter(PolicyOut | ErrorOut)

#: The shapes of whole answers.
_POLICY, _MOVE, _SWEEP = TypeAdapter(PolicyOut), TypeAdapter(MoveChosenOut), TypeAdapter(SweepOut)
_GAMES, _JUDGEMENT = TypeAdapter(GamesOut), TypeAdapter(JudgementOut)
_FIGURES = TypeAdapter(LeakageFiguresOut)
_WORST = TypeAdapter(WorstOut)
_POSITIONS = TypeAdapter(PositionsOut)
_MODELS, _VOCABULARY = TypeAdapter(ModelsOut), TypeAdapter(VocabularyOut)

#: Bytes of an answer about games for each character of the PGN, beyond MOST. With `include=["tree"]`, a move of 3
#: characters has 80 bytes.
_REPORTED = 64

#: Positions of a page of `leakage_positions`.
_PAGE = 1000

#: Longest timeout. System calls refuse numbers that are much larger.
_MOST_SECONDS = 1e9


class AsyncClient:
    """`Client` for asyncio: `async with AsyncClient(url) as client: …`, or call `aclose` at the end.

    It has the parameters and methods of `Client`, and the methods are coroutines.
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
        if http is not None and (url != _URL or key is not None):
            raise InvalidParameter(
                "http: this client has an address and headers of its own, so give neither url nor key with it"
            )
        self._connection = Connection(Address.of(url), headers_of(key), http)
        self._timeout = _seconds(timeout)
        self._retries = _whole("retries", retries, 0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._connection.close()

    async def policy(
        self, position: options.Given = ..., **arguments: Unpack[options.PolicyOptions]
    ) -> PolicyOut:
        """Returns the move distribution of a position."""
        return await self._answer("/v1/policy", _POLICY, fields_of(position, arguments))

    async def move(
        self, position: options.Given = ..., **arguments: Unpack[options.MoveOptions]
    ) -> MoveChosenOut:
        """Returns one move: the most probable, or with `method="sample"` a move drawn by
        probability.

        The same `seed` draws the same move.
        """
        return await self._answer("/v1/move", _MOVE, fields_of(position, arguments))

    async def policies(
        self, positions: Iterable[options.PositionLike], **arguments: Unpack[options.BatchOptions]
    ) -> AsyncGenerator[PolicyOut | ErrorOut, None]:
        """Yields the distributions of any number of positions, in order, as the service sends them.

        An invalid position gets an `ErrorOut`. The positions go out in batches, and `timeout` holds
        for each result.
        """
        shared = fields_of(..., arguments)
        for batch in batches(positions):
            waiting, retries_left, end = [batch], self._retries, self._end()
            while waiting:
                sent = waiting.pop(0)
                try:
                    number = 0
                    async with aclosing(
                        self._results({"positions": sent} | shared, len(sent))
                    ) as results:
                        async for result in results:
                            delay = seconds_to_retry(result)
                            if delay is not None and retries_left and delay < end - _now():
                                waiting.insert(0, sent[number:])  # the service was too busy
                                break
                            yield result
                            number, retries_left = number + 1, self._retries
                            delay, end = None, self._end()
                    if delay is not None:
                        retries_left -= 1
                        await asyncio.sleep(delay)
                except ApiError as error:
                    if error.name not in ("limit-exceeded", "body-too-large") or len(sent) == 1:
                        raise
                    waiting[:0] = [sent[: len(sent) // 2], sent[len(sent) // 2 :]]

    async def _results(
        self, fields: Mapping[str, Any], count: int
    ) -> AsyncGenerator[PolicyOut | ErrorOut, None]:
        """Yields the results of a batch with `count` positions, as they come."""
        sent = self._response(
            "/v1/policy/batch", body=body_of(fields), positions=count, accept=_NDJSON
        )
        async with sent as response:
            lines = Lines(response, _NDJSON)
            for number in range(count):
                async with self._in_time(response.where):
                    line = await lines.next()
                if line is None:
                    raise InvalidResponse(
                        f"{response.where}: {number} results for {count} positions"
                    )
                yield read_json(line, _RESULT, response.where)
            async with self._in_time(response.where):
                more = await lines.next()
            if more is not None:
                raise InvalidResponse(f"{response.where}: more results than the {count} positions")

    async def sweep(
        self, position: options.Given = ..., **arguments: Unpack[options.SweepOptions]
    ) -> SweepOut:
        """Evaluates one position at many `ratings`, or by many `models`."""
        return await self._answer("/v1/policy/sweep", _SWEEP, fields_of(position, arguments))

    async def games(self, pgn: str, **arguments: Unpack[options.GamesOptions]) -> GamesOut:
        """Reports on whole games: how probable each move was, and more."""
        return await self._answer(
            "/v1/games", _GAMES, {"pgn": pgn} | fields_of(..., arguments), most=_most_of(pgn)
        )

    async def annotate(self, pgn: str, **arguments: Unpack[options.GamesOptions]) -> str:
        """Returns the games as a PGN with comments."""
        body = body_of({"pgn": pgn} | fields_of(..., arguments))
        async with (
            self._in_time("/v1/games"),
            self._response("/v1/games", body=body, accept=_PGN) as response,
        ):
            return await text_of(response, _PGN, _most_of(pgn))

    async def audit(
        self, position: options.Given = ..., **arguments: Unpack[options.AuditOptions]
    ) -> JudgementOut:
        """Judges a program's `logits` or `probabilities` with their `vocabulary`, or its `policy`."""
        return await self._answer("/v1/audit", _JUDGEMENT, fields_of(position, arguments))

    async def leakage(self, /, **query: options.Parameter) -> LeakageFiguresOut:
        """Returns the leakage by model and kind. Parameters: `model`, `digest`, `by`, `since`,
        `until`.
        """
        return await self._answer("/v1/leakage", _FIGURES, query=query)

    async def leakage_worst(self, /, **query: options.Parameter) -> WorstOut:
        """Returns the positions with the most leakage.

        Parameters: `kind`, `limit`, `model`, `digest`, `since`, `until`.
        """
        return await self._answer("/v1/leakage/worst", _WORST, query=query)

    async def leakage_positions(
        self, /, *, limit: int | None = None, **query: options.Parameter
    ) -> AsyncGenerator[StoredPositionOut, None]:
        """Yields the recorded positions, newest first: `limit` of them, or all.

        Parameters: `model`, `digest`, `since`, `until`, and `cursor`, a page's `next`. They come in
        pages of 1,000, and `timeout` holds for each page.
        """
        left = inf if limit is None else _whole("limit", limit, 1)
        while left:
            size = int(min(left, _PAGE))
            page = await self._answer(
                "/v1/leakage/positions", _POSITIONS, query=query | {"limit": size}
            )
            for position in page.positions[:size]:
                yield position
            left -= min(left, len(page.positions))
            if page.next is None:
                return
            if not page.positions or page.next == query.get("cursor"):  # such as from a cache
                raise InvalidResponse(
                    "/v1/leakage/positions: an empty page, or the same again, names a next one"
                )
            query["cursor"] = page.next

    async def models(self) -> ModelsOut:
        """Returns the models of the service."""
        return await self._answer("/v1/models", _MODELS)

    async def vocabulary(self, name: str) -> VocabularyOut:
        """Returns the move of each slot of a vocabulary or a model."""
        return await self._answer(f"/v1/vocabularies/{quote(name, safe='')}", _VOCABULARY)

    async def _answer(
        self,
        path: str,
        shape: TypeAdapter[T],
        fields: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, options.Parameter] = {},
        most: int = MOST,
    ) -> T:
        """Returns the answer to a POST of these fields, or to a GET if `fields` is None."""
        body = None if fields is None else body_of(fields)
        async with (
            self._in_time(path),
            self._response(path, body=body, query=query_of(query)) as response,
        ):
            return read_json(await content_of(response, _JSON, most), shape, response.where)

    def _end(self) -> float:
        """Returns the time by which a call that begins now must have ended."""
        return _now() + self._timeout

    @asynccontextmanager
    async def _in_time(self, where: str) -> AsyncIterator[None]:
        """Ends what takes longer than the client's timeout with ServiceUnreachable."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError as error:
            raise ServiceUnreachable(f"{where}: not answered within {self._timeout:g} s") from error

    @asynccontextmanager
    async def _response(
        self,
        path: str,
        *,
        body: bytes | None,
        query: Mapping[str, str] = {},
        accept: str = _JSON,
        positions: int = 1,
    ) -> AsyncIterator[Response]:
        """Yields a successful response, open until the block ends. Raises ApiError for any other.

        A request is sent again if the service says when, and the time allows. Without a
        Retry-After, waiting does not help: the model failed its check, for instance. Sending twice
        is safe, because no request changes anything. A request for several `positions` that had no
        room for one, so that its body was not read, uses up no retry.
        """
        headers = {"Accept": accept, "Accept-Encoding": "gzip"} | (
            {} if body is None else {"Content-Type": _JSON}
        )
        method = "GET" if body is None else "POST"
        end = self._end()
        retries_left = self._retries
        while True:
            sent = self._connection.response(
                method, path, self._timeout, params=query, headers=headers, content=body
            )
            async with AsyncExitStack() as opened:
                async with self._in_time(path):
                    response = await opened.enter_async_context(sent)
                    if not response.ok:
                        problem, delay = await error_of(response), seconds_to_wait(response)
                if response.ok:
                    yield response
                    return
            requested = problem.extra.get("positions")
            unread = isinstance(requested, int) and requested < positions and self._retries > 0
            if delay is None or not (retries_left or unread) or delay >= end - _now():
                raise problem
            retries_left -= not unread
            await asyncio.sleep(delay)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _seconds(timeout: Any) -> float:
    """Returns a timeout in seconds; raises InvalidParameter."""
    if not isinstance(timeout, Real) or not 0 < float(timeout) <= _MOST_SECONDS:
        raise InvalidParameter(f"timeout: {quoted(timeout)} is not a number of seconds above 0")
    return float(timeout)


def _whole(name: str, number: Any, least: int) -> int:
    """Returns a whole number; raises InvalidParameter."""
    if not isinstance(number, Integral) or int(number) < least:
        raise InvalidParameter(
            f"{name}: {quoted(number)} is not a whole number of at least {least}"
        )
    return int(number)


def _most_of(pgn: str) -> int:
    """Returns the largest size in bytes of an answer about games."""
    return MOST + _REPORTED * (len(pgn) if isinstance(pgn, str) else 0)


class _Loop:
    """An event loop in a thread of its own, for the blocking client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="movemask-client", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # an interrupted caller waits for nothing
            future.cancel()
            raise

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Ends the thread after a last coroutine."""
        future = asyncio.run_coroutine_threadsafe(last, self._loop)
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        # Its own thread may collect the client as garbage.
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._loop.close()


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    @wraps(method)
    def call(client: Client, /, *args: P.args, **options: P.kwargs) -> T:
        return client._run(method(client._client, *args, **options))

    return call


def _blocking_each(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    @wraps(method)
    def call(client: Client, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        results = method(client._client, *args, **options)
        try:
            while True:
                yield client._run(anext(results))
        except StopAsyncIteration:
            return
        finally:
            client._run(results.aclose())

    return call


def _closed(loop: _Loop, client: AsyncClient, process: int) -> None:
    """Closes the connections and the loop of a client that is gone. A parent process's are left alone."""
    if process == os.getpid():
        loop.stop(client.aclose())


class Client:
    """A client of a service: `with Client(url) as client: …`, or call `close` at the end.

    Parameters
    ----------
    url : the address of the service: `http://…`, `https://…`, or `unix:PATH` for a Unix socket
    key : an API key, if the service asks for a key
    timeout : seconds for a whole call, with its retries. For `policies` it holds for each result, for
        `leakage_positions` for each page.
    retries : how often a request is sent again after a 429 or 503 with Retry-After, if the timeout allows. `policies`
        also sends again what comes back `overloaded` in a batch.
    http : your own `httpx2.AsyncClient`, with its `base_url` and headers, in place of `url` and `key`, which then must
        not be given. It is not closed.

    A position is a board with its history, a FEN or `startpos`. `moves`, in UCI or SAN, are played from the position,
    or from the start position if only `moves` are given. Numbers and arrays may be numpy's.

    Every method raises ApiError for a problem that the service responds with, such as a position that is None or left
    out; ServiceUnreachable; InvalidResponse for an answer that is not movemask's; and InvalidParameter or
    UnsupportedVariant for an argument that cannot be sent. Threads may share a client. After a fork, each process has
    connections of its own.
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
        self._client = AsyncClient(url, key=key, timeout=timeout, retries=retries, http=http)
        self._lock = threading.Lock()
        self._process = 0
        self._loop: _Loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._run(self._client.aclose())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine, on this process's loop."""
        # The first call, or the first after a fork, which takes no thread along.
        if self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    self._loop = _Loop()
                    self._process = os.getpid()
                    weakref.finalize(self, _closed, self._loop, self._client, self._process)
        return self._loop.run(coroutine)

    policy = _blocking(AsyncClient.policy)
    move = _blocking(AsyncClient.move)
    policies = _blocking_each(AsyncClient.policies)
    sweep = _blocking(AsyncClient.sweep)
    games = _blocking(AsyncClient.games)
    annotate = _blocking(AsyncClient.annotate)
    audit = _blocking(AsyncClient.audit)
    leakage = _blocking(AsyncClient.leakage)
    leakage_worst = _blocking(AsyncClient.leakage_worst)
    leakage_positions = _blocking_each(AsyncClient.leakage_positions)
    models = _blocking(AsyncClient.models)
    vocabulary = _blocking(AsyncClient.vocabulary)
