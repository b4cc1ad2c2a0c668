"""`Engine`: evaluations by a UCI engine, such as Stockfish, in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

import chess
import chess.engine

from movemask.board.pgn import expected_score

log = logging.getLogger(__name__)

#: Nodes of the first search of every position, and of the second, of those around what is marked or near a mark.
#: docs/uci.md has what they find.
QUICK, DEEP = 5_000, 120_000

#: Most seconds for a position: an engine that is slower than Stockfish searches fewer nodes.
_LONGEST = 5.0

#: Moves that are kept of a line.
_LINE = 16

#: Lower priority than the network's: a service under load answers requests first.
_NICE = ["nice", "-n", "5"]

_OPTIONS = {"Threads": 1, "Hash": 16}  # MB
_WANTED = chess.engine.INFO_SCORE | chess.engine.INFO_PV


class Evaluation(NamedTuple):
    """What an engine says of a position: its evaluation and its best line, and the nodes that it was to search."""

    score: chess.engine.PovScore
    line: tuple[chess.Move, ...]
    nodes: int = DEEP

    @property
    def expected(self) -> float:
        """White's expected score, 0 to 1."""
        return expected_score(self.score)


class Evaluations(Protocol):
    """Evaluates positions. Implemented by `Engine`, and by the server for one client."""

    def of(
        self, boards: Sequence[chess.Board], nodes: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        """The number of each position and its evaluation with its `nodes`, in order, as they are found. An engine that
        fails ends them early. Of a game, the last position should come first: what is found of it is in the hash for
        those before."""


class Engine:
    """A UCI engine: one process with one thread, a small hash and a low priority.

    It starts when a position comes, and is killed when none comes for a while, when it is stuck, and at the end. The
    first failure is logged.

    Parameters
    ----------
    command : the program's name on PATH, or its path; None: there is no engine
    idle : seconds without a position after which the process ends
    stuck : seconds after which a process that does not answer is killed
    pause : seconds without evaluations after a failure
    """

    def __init__(
        self, command: str | None, *, idle: float = 60, stuck: float = 60, pause: float = 60
    ) -> None:
        self._command = command
        self._idle_seconds, self._stuck_seconds, self._pause_seconds = idle, stuck, pause
        self._transport: asyncio.SubprocessTransport | None = None
        self._protocol: chess.engine.UciProtocol | None = None
        self._ending: set[asyncio.Future[int]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._failed = False
        self._paused_until = 0.0

    @property
    def exists(self) -> bool:
        """Whether there is an engine, even if it has just failed."""
        return self._command is not None

    @property
    def ready(self) -> bool:
        """Whether there is an engine, and it has not just failed."""
        return self.exists and time.monotonic() >= self._paused_until

    async def evaluate(
        self, board: chess.Board, game: object, nodes: int = DEEP
    ) -> Evaluation | None:
        """The evaluation of a position that is not over; None if the engine fails, or plays no Chess960. One call at a
        time.

        Positions of the same `game` share the hash; before those of another it is cleared.
        """
        if not self.ready:
            return None
        if self._idle is not None:
            self._idle.cancel()
        try:
            protocol = await self._started() if self._protocol is None else self._protocol
            result = await self._answered(self._asked(protocol, board, game, nodes))
        except Exception as error:  # of another program, which may do anything
            self._fail(error)
            return None
        self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._kill)
        return result

    async def of(
        self, boards: Sequence[chess.Board], nodes: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Evaluation], None]:
        """As `Evaluations.of`."""
        for place, board in enumerate(boards):
            evaluation = await self.evaluate(board, boards, nodes[place])
            if evaluation is None:
                return
            yield place, evaluation

    async def aclose(self) -> None:
        """Kills the process, and waits until every process that was started has ended."""
        self._command = None
        self._kill()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _started(self) -> chess.engine.UciProtocol:
        """A new process, which has not said anything yet."""
        assert self._command is not None
        options: dict[str, Any] = {}
        command = [self._command]
        if shutil.which(_NICE[0]):
            command = [*_NICE, *command]
        else:
            options["creationflags"] = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
        # A process group of its own, because Ctrl-C is sent to the whole group of the service, which drains first.
        self._transport, protocol = await chess.engine.UciProtocol.popen(
            command, setpgrp=True, **options
        )
        self._protocol = protocol
        self._ending.add(protocol.returncode)
        protocol.returncode.add_done_callback(self._ending.discard)
        return protocol

    @staticmethod
    async def _asked(
        protocol: chess.engine.UciProtocol, board: chess.Board, game: object, nodes: int
    ) -> Evaluation | None:
        if not protocol.initialized:
            await protocol.initialize()
            await protocol.configure(
                {name: value for name, value in _OPTIONS.items() if name in protocol.options}
            )
        if board.chess960 and "UCI_Chess960" not in protocol.options:
            return None
        limit = chess.engine.Limit(nodes=nodes, time=_LONGEST)
        info = await protocol.analyse(board, limit, game=game, info=_WANTED)
        return Evaluation(info["score"], tuple(info.get("pv", ())[:_LINE]), nodes)

    async def _answered(self, asking: Coroutine[Any, Any, Evaluation | None]) -> Evaluation | None:
        """What the engine answers. A process that is stuck, or that nobody waits for any more, is killed: python-chess
        does not bear that its coroutines are cancelled, but they end with the process."""
        task = asyncio.create_task(asking)
        try:
            answered, _ = await asyncio.wait({task}, timeout=self._stuck_seconds)
        finally:
            if not task.done():
                self._kill()
                await asyncio.wait({task})
        if not answered:
            task.exception()  # that its process has gone
            raise TimeoutError(f"no answer for {self._stuck_seconds:g} s")
        return task.result()

    def _fail(self, error: Exception) -> None:
        self._kill()
        self._paused_until = time.monotonic() + self._pause_seconds
        if self._command is None:  # closed meanwhile
            return
        if not self._failed:
            why = f"{type(error).__name__}: {error}"
            log.error(
                "the engine %s has failed: %s; games are reported without its evaluations",
                self._command,
                why,
            )
        self._failed = True

    def _kill(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._transport is not None:
            self._transport.close()  # kills the process
        self._idle = self._transport = self._protocol = None
