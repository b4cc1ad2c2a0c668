"""`EngineQueue`: the positions that wait for the chess engine of a process. Clients take turns of a few positions."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import chess

from movemask.games.engine import QUICK, Engine, Evaluation, Evaluations
from movemask.server.queue.fair import SHARE, Item, Turns

#: Nodes of a position that costs 1, an eighth of a client's turn. A position with fewer nodes costs 1 too.
_NODES_PER_COST = 8 * QUICK

#: Most positions that wait in a process, about a minute's. A client has at most half of the room that others leave.
_CAPACITY = 1024

#: Most evaluations that are kept, those of some 50 games. Who loads a game again, or saves it with comments, waits for
#: no search.
_KEPT = 4096


@dataclass(slots=True, eq=False)
class _Submission:
    """Positions of one request, and their evaluations until the request takes them.

    entered : number of positions that have entered the queue
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
    """The chess engine of a process, and the clients that wait for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = Turns[_Submission]()
        self._kept: dict[tuple[str, bool, int], Evaluation] = {}  # by position and nodes
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Positions that wait."""
        return self._turns.waiting

    def for_client(self, client: str, charge: Callable[[int], None]) -> Evaluations | None:
        """Returns the engine for one client's positions; None if there is no engine.

        Its `of` evaluates nothing if the engine has just failed, or if the queue has no room for the client. It calls
        `charge` with the number of positions that it will evaluate, and raises what that raises.
        """
        return _ForClient(self, client, charge) if self._engine.exists else None

    @property
    def ready(self) -> bool:
        """Whether the engine evaluates positions now."""
        return self._engine.ready

    def room_for(self, client: str) -> int:
        """Returns the number of positions that a client may add now."""
        own = self._turns.waiting_of(client)
        return max(0, (_CAPACITY - (self.waiting - own)) // 2 - own)

    def evaluations(
        self, boards: Sequence[chess.Board], client: str, nodes: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        """As `Evaluations.of`. The positions enter the queue now, those for which it has no room as results come.

        Those that are not evaluated when the iterator is closed, or is gone without having begun, are dropped.
        """
        submission = _Submission(boards, nodes)
        # At least 1 enters: only a result lets the next one in.
        self._enter(submission, client, max(1, self.room_for(client)))
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

    def _enter(self, submission: _Submission, client: str, count: int) -> None:
        """Adds the next positions of a submission to the queue, at most `count`."""
        first = submission.entered
        submission.entered = min(first + count, len(submission.boards))
        items = [
            Item(submission, place, max(1.0, submission.nodes[place] / _NODES_PER_COST))
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
                submission.results.put_nowait((place, await self._evaluated(submission, place)))

    async def _evaluated(self, submission: _Submission, place: int) -> Evaluation | None:
        """The evaluation of a position, if it is not kept, by the engine; None if that fails."""
        board, nodes = submission.boards[place], submission.nodes[place]
        key = board.fen(), board.chess960, nodes
        evaluation = self._kept.get(key) or await self._engine.evaluate(board, submission, nodes)
        if evaluation is not None:
            self._kept[key] = evaluation
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return evaluation


@dataclass(frozen=True, slots=True)
class _ForClient:
    """The engine's queue with a client, as `Evaluations`."""

    queue: EngineQueue
    client: str
    charge: Callable[[int], None]

    def of(
        self, boards: Sequence[chess.Board], nodes: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        if not self.queue.ready or not self.queue.room_for(self.client):
            boards = ()
        self.charge(len(boards))
        return self.queue.evaluations(boards, self.client, nodes)
