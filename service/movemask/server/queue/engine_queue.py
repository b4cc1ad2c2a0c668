"""`EngineQueue`: the positions that wait for the engine of this process. Clients take turns of a few positions."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import chess

from movemask.games.engine import QUICK, Engine, Evaluation, Evaluations
from movemask.server.queue.fair import SHARE, Item, Turns

#: Nodes of a position that costs 1 of the 8 of a client's turn, as do those with fewer.
_A_TURN = 8 * QUICK

#: Places for positions in a process, about a minute's. A client holds at most half of those that others leave free.
_PLACES = 1024


@dataclass(slots=True, eq=False)
class _Submission:
    """Positions of one request, and their evaluations until the request takes them.

    entered : number of positions that have had a place in the queue
    dropped : whether nobody waits for them any more
    """

    boards: Sequence[chess.Board]
    nodes: Sequence[int]
    results: asyncio.Queue[tuple[int, Evaluation | None]] = field(default_factory=asyncio.Queue)
    entered: int = 0
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True


class EngineQueue:
    """The engine of a process, and the clients that wait for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = Turns[_Submission]()
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Positions that wait."""
        return self._turns.items

    def for_client(self, client: str, charge: Callable[[int], None]) -> Evaluations | None:
        """The engine for one client's positions; None if there is none.

        One that has just failed, or that has no place free, evaluates nothing. Its `of` calls `charge` with the number
        of positions, and raises what that raises.
        """
        return _ForClient(self, client, charge) if self._engine.exists else None

    @property
    def ready(self) -> bool:
        """Whether the engine evaluates positions now."""
        return self._engine.ready

    def places(self, client: str) -> int:
        """Number of positions that a client may add now."""
        own = self._turns.items_of(client)
        return max(0, (_PLACES - (self.waiting - own)) // 2 - own)

    def evaluations(
        self, boards: Sequence[chess.Board], client: str, nodes: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        """As `Evaluations.of`; the positions wait from now on, those without a place outside of the queue.

        Those that are not evaluated when the iterator is closed, or is gone without having begun, are dropped.
        """
        submission = _Submission(boards, nodes)
        self._enter(submission, client, max(1, self.places(client)))
        results = self._results_of(submission, client)
        # a generator that has not begun runs no `finally`
        weakref.finalize(results, submission.drop)
        return results

    async def _results_of(
        self, submission: _Submission, client: str
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        try:
            for _ in submission.boards:
                place, evaluation = await submission.results.get()
                if evaluation is None:
                    return
                self._enter(submission, client, 1)
                yield place, evaluation
        finally:
            submission.drop()
            self._turns.remove(client, submission)

    def _enter(self, submission: _Submission, client: str, places: int) -> None:
        """Gives places to the next positions of a submission."""
        first = submission.entered
        submission.entered = min(first + places, len(submission.boards))
        items = [
            Item(submission, place, max(1.0, submission.nodes[place] / _A_TURN))
            for place in range(first, submission.entered)
        ]
        if not items:
            return
        self._turns.add(client, items)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

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
                evaluation = await self._engine.evaluate(
                    submission.boards[place], submission, submission.nodes[place]
                )
                submission.results.put_nowait((place, evaluation))


@dataclass(frozen=True, slots=True)
class _ForClient:
    """The engine's queue with a client, as `Evaluations`."""

    queue: EngineQueue
    client: str
    charge: Callable[[int], None]

    def of(
        self, boards: Sequence[chess.Board], nodes: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        if not self.queue.ready or not self.queue.places(self.client):
            boards = ()
        self.charge(len(boards))
        return self.queue.evaluations(boards, self.client, nodes)
