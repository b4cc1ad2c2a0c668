"""`Engine`: reads the GUI's commands and answers them at once. A thread of its own searches."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

import chess

from movemask.errors import ApiError, MovemaskError, ServiceUnreachable
from movemask.uci.commands import Go, read_go, read_setoption, tokens_of
from movemask.uci.options import Options
from movemask.version import __version__

if TYPE_CHECKING:
    from movemask.uci.search import Search, Source

# `uciok` comes after 0.4 s. Modules that load numpy or onnxruntime are imported in functions: they would double that
# time, and take seconds from a cold disk. Some GUIs give up on an engine by then.

#: Seconds between two reports of `go infinite`.
_REPORT_SECONDS = 1.0

#: Seconds before a service that cannot be reached is asked again.
_AGAIN_SECONDS = 0.25

#: Statuses of a proxy whose service restarts, and of a service that stops.
PASSING = (502, 503, 504)


@dataclass(slots=True)
class _Task:
    """A `go` command, the start of its clock, and whether its move may be sent (released) or must be sent (stopped)."""

    board: chess.Board | None
    go: Go
    options: Options
    source: Future[Source]
    draws: random.Random
    started: float = field(default_factory=time.monotonic)
    released: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)


class Engine:
    """Speaks UCI on two streams.

    Parameters
    ----------
    open_source : loads the network of a name, to run on a number of threads; called on a separate thread
    options : names of the models, and the initial values
    out : stream for the answers, written in whole lines
    spare : loads the network that plays when the source of a service fails; None without a service
    absent : whether the service does not answer now
    """

    def __init__(
        self,
        open_source: Callable[[str | None, int], Source],
        options: Options,
        out: TextIO,
        spare: Callable[[], Source] | None = None,
        *,
        absent: bool = False,
    ) -> None:
        self._open_source = open_source
        self._absent = absent  # whether the service did not answer the last search
        self._open_spare = spare
        self._spare: Future[Source] | None = None
        self._options = options
        self._out = out
        self._lock = threading.Lock()
        self._gone = False  # whether the GUI no longer reads
        self._chess960: bool | None = None  # UCI_Chess960, once the GUI has set it
        self._position: Sequence[str] = ("startpos",)  # the words of the last `position` command
        # None if the last `position` could not be read
        self._board: chess.Board | None = chess.Board()
        self._task: _Task | None = None
        self._searcher = ThreadPoolExecutor(1)
        self._loader = ThreadPoolExecutor(1)
        self._opened: tuple[tuple[str | None, int], Future[Source]] | None = None
        self._draws = random.Random()

    def run(self, lines: Iterable[str]) -> None:
        """Reads commands until `quit` or the end of the lines. Finishes a running search."""
        try:
            for line in lines:
                if self._gone or not self._command(tokens_of(line), line):
                    break
        finally:
            self._stop()
            self._searcher.shutdown()
            self._loader.shutdown()

    def _command(self, tokens: Sequence[str], line: str) -> bool:
        """Obeys one command. False for `quit`. No input ends the engine."""
        if not tokens:
            if line.strip():
                self._note(f"unknown command: {line.strip()[:60]}")
            return True
        name, rest = tokens[0], tokens[1:]
        try:
            match name:
                case "uci":
                    self._say(f"id name movemask {__version__}", "id author the movemask authors")
                    self._say(*self._options.lines(), "uciok")
                case "isready":
                    if self._absent:
                        self._load_spare()
                    self._source().add_done_callback(self._ready)
                case "setoption":
                    self._set(*read_setoption(rest))
                case "ucinewgame":
                    self._new_game()
                case "position":
                    self._position = rest
                    self._read_position()
                case "go":
                    self._go(read_go(rest))
                case "stop":
                    self._stop()
                case "ponderhit":
                    if self._task is not None:
                        self._task.started = time.monotonic()
                        self._task.released.set()
                case "d":
                    self._draw()
                case "eval":
                    self._stop()
                    self._searcher.submit(
                        self._evaluate, self._board, replace(self._options), self._source()
                    )
                case "quit":
                    return False
        except (ValueError, MovemaskError) as error:
            self._note(str(error))
        return True

    def _set(self, name: str, value: str) -> None:
        self._options.set(name, value)
        if name.lower() == "seed":
            self._new_game()
        elif name.lower() == "uci_chess960":
            self._chess960 = self._options.chess960
            self._read_position()

    def _new_game(self) -> None:
        self._draws = random.Random(self._options.seed or None)

    def _read_position(self) -> None:
        """Sets the board from the last `position` command and UCI_Chess960. Raises ValueError."""
        if list(self._position) == [
            "startpos"
        ]:  # needs no import: Nibbler sets UCI_Chess960 before `uciok`
            self._board = chess.Board(chess960=bool(self._chess960))
            return
        from movemask.uci.positions import read_position

        self._board = None
        self._board, notes = read_position(self._position, chess960=self._chess960)
        for note in notes:
            self._note(note)

    def _draw(self) -> None:
        """Prints the board, for people."""
        from movemask.uci.positions import picture_of

        if self._board is None:
            self._note("there is no position: the last one could not be read")
        else:
            self._say(*picture_of(self._board))

    def _source(self) -> Future[Source]:
        """Returns the network named by the options.

        Starts loading it if it is not loaded, or if loading it failed.
        """
        choice = (self._options.model or None, self._options.threads)
        if self._opened is None or self._opened[0] != choice or _has_failed(self._opened[1]):
            self._opened = choice, self._loader.submit(self._open_source, *choice)
        return self._opened[1]

    def _ready(self, source: Future[Source]) -> None:
        """Reports that the network is loaded, or why it is not. Works during a search too."""
        error = source.exception()
        if error is not None:
            self._fault(error)
        self._say("readyok")

    def _go(self, go: Go) -> None:
        self._stop()
        for fault in go.faults:
            self._note(fault)
        board = None if self._board is None else self._board.copy()
        self._task = _Task(board, go, replace(self._options), self._source(), self._draws)
        self._searcher.submit(self._play, self._task)

    def _stop(self) -> None:
        """Makes a waiting search send its move."""
        if self._task is not None:
            self._task.stopped.set()
            self._task.released.set()
            self._task = None

    def _play(self, task: _Task) -> None:
        """Searches and sends `bestmove`, whatever goes wrong: a GUI waits for it."""
        best, seconds = "bestmove (none)", 0.0
        search: Search | None = None
        try:
            if task.board is None:
                self._note("there is no position: the last one could not be read")
            else:
                search = self._searched(task, task.board)
                best, seconds = search.bestmove(), search.seconds
                for note in search.notes:
                    self._note(note)
                self._say(*search.info())
                if task.go.infinite:
                    self._keep_informed(search, task)
        except Exception as error:
            self._fault(error)
            if task.board is not None and self._open_spare is not None:
                best = self._without_service(task, task.board)
        if task.go.waits:
            task.released.wait()
        task.stopped.wait(task.started + seconds - time.monotonic())
        self._say(*(search.stats() if search else ()), best)

    def _searched(self, task: _Task, board: chess.Board) -> Search:
        """Returns the search.

        A service that restarts is asked again while the clock allows: giving up would lose the
        game. If that was in vain, later searches ask it once, until it answers.
        """
        from movemask.uci.search import Search

        patience = 0.0 if self._absent else task.go.patience(board.turn)
        end = task.started + patience
        while True:
            try:
                search = Search(board, task.go, task.options, task.source.result(), task.draws)
            except (ServiceUnreachable, ApiError) as error:
                self._load_spare()
                passing = isinstance(error, ServiceUnreachable) or error.status in PASSING
                if not passing or time.monotonic() >= end or task.stopped.wait(_AGAIN_SECONDS):
                    self._absent = passing
                    raise
            else:
                self._absent = False
                return search

    def _load_spare(self) -> None:
        if self._open_spare is not None and (self._spare is None or _has_failed(self._spare)):
            self._spare = self._loader.submit(self._open_spare)

    def _without_service(self, task: _Task, board: chess.Board) -> str:
        """`bestmove` of the spare network, its most probable move; or of any legal move: without one, the game is lost.

        Loading the network may take a quarter of the time for the move or game.
        """
        from movemask.uci.search import Search

        self._load_spare()
        try:
            assert self._spare is not None
            source = self._spare.result(task.go.patience(board.turn) / 2)
            search = Search(board, task.go, replace(task.options, analyse=True), source, task.draws)
        except Exception as error:
            self._fault(error)
            moves = list(board.legal_moves)
            return f"bestmove {board.uci(task.draws.choice(moves))}" if moves else "bestmove (none)"
        search.remark = f", by {search.model} on this machine: the service does not answer"
        self._say(*search.info())
        return search.bestmove()

    def _keep_informed(self, search: Search, task: _Task) -> None:
        """Extends the lines of an analysis ply by ply, then reports every second until it is stopped."""
        while True:
            if task.options.live:
                self._say(*search.stats())
            grown = search.grow()
            if task.released.wait(0 if grown else _REPORT_SECONDS):
                return
            self._say(*search.info())

    def _evaluate(
        self, board: chess.Board | None, options: Options, source: Future[Source]
    ) -> None:
        """Prints the network's evaluation of the position, for people."""
        from movemask.uci.info import evaluation

        try:
            if board is None:
                self._note("there is no position: the last one could not be read")
            else:
                (policy,) = source.result().policies([board.copy()], elo=options.elo)
                self._say(*evaluation(policy))
        except Exception as error:
            self._fault(error)

    def _fault(self, error: BaseException) -> None:
        """Reports an error. A bug is reported too, so that it does not cost a game silently."""
        self._note(
            str(error) if isinstance(error, MovemaskError) else f"{type(error).__name__}: {error}"
        )

    def _note(self, text: str) -> None:
        """Writes a line for people."""
        self._say(f"info string {' '.join(text.split())}")

    def _say(self, *lines: str) -> None:
        """Writes lines. If the GUI no longer reads, the engine ends at its next command."""
        if lines and not self._gone:
            with self._lock:
                try:
                    self._out.write("\n".join(lines) + "\n")
                    self._out.flush()
                except (OSError, ValueError):  # the pipe is broken, or the stream is closed
                    self._gone = True


def _has_failed(source: Future[Source]) -> bool:
    return source.done() and source.exception() is not None
