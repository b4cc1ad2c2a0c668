"""`AsyncClient`: `Client` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
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


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited. `http` is an `httpx2.AsyncClient`."""

    def __init__(
        self,
        url: str = URL,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        settings = ClientSettings(url, key, timeout, retries)
        self._retries = settings.retries
        self._own = http is None
        self._http = http or httpx2.AsyncClient(**settings.http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._own:
            await self._http.aclose()

    async def policy(
        self, position: Position = "startpos", *, moves: Sequence[str] | None = None, **options: Unpack[PolicyOptions]
    ) -> PolicyOut:
        """As `Client.policy`."""
        return await self._run(calls.policy(position, moves, options))

    async def move(
        self,
        position: Position = "startpos",
        *,
        moves: Sequence[str] | None = None,
        method: Literal["greedy", "sample"] = "greedy",
        seed: int | None = None,
        **options: Unpack[PolicyOptions],
    ) -> MoveChosenOut:
        """As `Client.move`."""
        return await self._run(calls.move(position, moves, method, seed, options))

    async def policies(
        self, positions: Iterable[Position], **options: Unpack[PolicyOptions]
    ) -> AsyncIterator[PolicyOut | ErrorOut]:
        """As `Client.policies`."""
        for part in calls.batches(positions):
            async for result in self._lines(part, options):
                yield result

    async def sweep(
        self, position: Position = "startpos", *, moves: Sequence[str] | None = None, **options: Unpack[SweepOptions]
    ) -> SweepOut:
        """As `Client.sweep`."""
        return await self._run(calls.sweep(position, moves, options))

    async def games(self, pgn: str, *, model: str | None = None, temperature: Temperature | None = None) -> GamesOut:
        """As `Client.games`."""
        return await self._run(calls.games(pgn, model, temperature))

    async def annotate(self, pgn: str, *, model: str | None = None, temperature: Temperature | None = None) -> str:
        """As `Client.annotate`."""
        return await self._run(calls.annotate(pgn, model, temperature))

    async def audit(
        self, position: Position = "startpos", *, moves: Sequence[str] | None = None, **numbers: Unpack[AuditNumbers]
    ) -> VerdictOut:
        """As `Client.audit`."""
        return await self._run(calls.audit(position, moves, numbers))

    async def leakage(self, **query: str | None) -> LeakageFiguresOut:
        """As `Client.leakage`."""
        return await self._run(calls.leakage(**query))

    async def leakage_history(self, **query: str | None) -> HistoryOut:
        """As `Client.leakage_history`."""
        return await self._run(calls.history(**query))

    async def leakage_worst(self, **query: str | None) -> WorstOut:
        """As `Client.leakage_worst`."""
        return await self._run(calls.worst(**query))

    async def leakage_positions(self, **query: str | None) -> AsyncIterator[AuditedOut]:
        """As `Client.leakage_positions`."""
        page = await self._run(calls.positions(limit="1000", **query))
        while True:
            for position in page.positions:
                yield position
            if page.next is None:
                return
            page = await self._run(calls.positions(limit="1000", cursor=page.next, **query))

    async def models(self) -> ModelsOut:
        """As `Client.models`."""
        return await self._run(calls.models())

    async def model(self, name: str) -> ModelEntryOut:
        """As `Client.model`."""
        return await self._run(calls.model(name))

    async def ready(self) -> ReadyOut:
        """As `Client.ready`."""
        return await self._run(calls.ready())

    async def version(self) -> VersionOut:
        """As `Client.version`."""
        return await self._run(calls.version())

    async def _run(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            with connection_errors():
                try:
                    response = await self._http.request(call.method, call.path, **arguments(call))
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
            await asyncio.sleep(wait)

    async def _lines(self, part: list[dict[str, Any]], options: PolicyOptions) -> AsyncIterator[PolicyOut | ErrorOut]:
        call, attempt = calls.batch(part, options), 0
        while True:
            with connection_errors():
                try:
                    async with self._http.stream(call.method, call.path, **arguments(call)) as response:
                        if response.is_success:
                            async for line in response.aiter_lines():
                                if line:
                                    yield calls.result(line)
                            return
                        error = error_of(response.status_code, await response.aread())
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
            await asyncio.sleep(wait)
        for half in halves(part):
            async for result in self._lines(half, options):
                yield result
