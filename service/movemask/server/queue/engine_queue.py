"""`EngineQueue`: the positions that wait for the engine of this process. Clients take turns of a few positions."""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import chess

from movemask.errors import Overloaded
from movemask.games.engine import Engine, Evaluation, Evaluations
from movemask.server.queue.fair import SHARE, Item, Turns

#: Most positions that wait in a process, about a minute's. Beyond it: Overloaded, unless none wait.
_MOST_WAITING = 1024


@dataclass(slots=True, eq=False)
class _Submission:
    """Positions of one request, and what has been found of them and not been taken yet.

    dropped : whether nobody waits for them any more
    """

    boards: Sequence[chess.Board]
    found: asyncio.Queue[tuple[int, Evaluation | None]] = field(default_factory=asyncio.Queue)
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True


class EngineQueue:
    """The engine of a process, and the clients that wait for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = Turns[_Submission]()
        self._running: asyncio.Task[None] | None = None
        self._seconds = 0.1  # that the last position took

    @property
    def waiting(self) -> int:
        """Positions that wait."""
        return self._turns.items

    def for_client(self, client: str, charge: Callable[[int], None]) -> Evaluations | None:
        """The engine for one client's positions; None if there is none.

        One that has just failed evaluates nothing for a while. Its `of` calls `charge` with the number of positions,
        and raises what that raises, and Overloaded.
        """
        return _ForClient(self, client, charge) if self._engine.exists else None

    @property
    def ready(self) -> bool:
        """Whether the engine evaluates positions now."""
        return self._engine.ready

    def admit(self, positions: int) -> None:
        """Raises Overloaded if that many more positions would have to wait too long."""
        more = self.waiting + positions - _MOST_WAITING
        if self.waiting and more > 0:
            fault = f"{self.waiting} positions are already waiting for the engine; it has room for {_MOST_WAITING}"
            raise Overloaded(fault, retry_after=max(1, math.ceil(more * self._seconds)))

    def evaluations(
        self, boards: Sequence[chess.Board], client: str
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        """As `Evaluations.of`; the positions wait from now on. Those that are not evaluated when the iterator is
        closed, or is gone without having begun, are dropped."""
        submission = _Submission(boards)
        self._turns.add(client, [Item(submission, place, 1) for place in range(len(boards))])
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        found = self._found(submission, client)
        weakref.finalize(found, submission.drop)  # what has not begun runs no `finally`
        return found

    async def _found(
        self, submission: _Submission, client: str
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        try:
            for _ in submission.boards:
                place, evaluation = await submission.found.get()
                if evaluation is None:
                    return
                yield place, evaluation
        finally:
            submission.drop()
            self._turns.remove(client, submission)

    async def aclose(self) -> None:
        """Ends the engine. What still waits gets no evaluation."""
        await self._engine.aclose()
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        while self.waiting:
            for submission, place, _ in self._turns.take(SHARE):
                if submission.dropped:
                    continue
                began = time.perf_counter()
                evaluation = await self._engine.evaluate(submission.boards[place], submission)
                self._seconds = time.perf_counter() - began
                submission.found.put_nowait((place, evaluation))


@dataclass(frozen=True, slots=True)
class _ForClient:
    """The engine's queue with a client, as `Evaluations`."""

    queue: EngineQueue
    client: str
    charge: Callable[[int], None]

    def of(self, boards: Sequence[chess.Board]) -> AsyncGenerator[tuple[int, Evaluation], None]:
        if not self.queue.ready:
            boards = ()
        self.queue.admit(len(boards))
        self.charge(len(boards))
        return self.queue.evaluations(boards, self.client)
