"""The engine: reads commands, answers at once, and searches on a thread of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TextIO

import chess

from movemask.errors import MovemaskError
from movemask.uci.commands import Go, read_go, read_position, read_setoption, tokens_of
from movemask.uci.options import Options
from movemask.version import __version__

if TYPE_CHECKING:
    from movemask.uci.search import Source


@dataclass(slots=True)
class _Search:
    """One `go`, since when its clock runs, and whether its move may be sent, or must be at once."""

    board: chess.Board | None
    go: Go
    started: float = field(default_factory=time.monotonic)
    released: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)


class Engine:
    """Speaks UCI on two streams.

    Parameters
    ----------
    open_source : loads the network of that name; called on the thread of the searches
    options : names of the models, and the values to begin with
    out : where answers are written, a line at a time
    """

    def __init__(self, open_source: Callable[[str | None], Source], options: Options, out: TextIO) -> None:
        self._opened = lru_cache(1)(open_source)
        self._options = options
        self._out = out
        self._lock = threading.Lock()
        self._board: chess.Board | None = chess.Board()
        self._search: _Search | None = None
        self._work = ThreadPoolExecutor(1)  # the thread of the searches
        self._seeds = random.Random()
        self._tried = threading.Event()  # the network has been loaded, or could not be

    def run(self, lines: Iterable[str]) -> None:
        """Reads commands until `quit` or the end of the lines; a search under way is finished."""
        try:
            for line in lines:
                if not self._command(tokens_of(line), line):
                    break
        except BrokenPipeError:  # the GUI is gone
            pass
        finally:
            self._stop()
            self._work.shutdown()

    def _command(self, tokens: Sequence[str], line: str) -> bool:
        """Obeys one command; False for `quit`. Nothing that is sent ends the engine."""
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
                    if self._tried.is_set():  # also during a search
                        self._say("readyok")
                    else:
                        self._work.submit(self._ready)
                case "setoption":
                    self._set(*read_setoption(rest))
                case "ucinewgame":
                    self._work.submit(self._new_game)
                case "position":
                    self._board = None
                    self._board = read_position(rest, chess960=self._options.chess960)
                case "go":
                    self._stop()
                    go = read_go(rest)
                    for fault in go.faults:
                        self._note(fault)
                    wanted = self._search = _Search(None if self._board is None else self._board.copy(), go)
                    self._work.submit(self._play, wanted)
                case "stop":
                    self._stop()
                case "ponderhit":
                    if self._search is not None:
                        self._search.started = time.monotonic()
                        self._search.released.set()
                case "quit":
                    return False
        except (ValueError, MovemaskError) as error:
            self._note(str(error))
        return True

    def _set(self, name: str, value: str) -> None:
        self._options.set(name, value)
        if name.lower() == "seed":
            self._work.submit(self._new_game)
        elif name.lower() == "uci_chess960" and self._board is not None:
            self._board.chess960 = self._options.chess960

    def _stop(self) -> None:
        """Lets a search that waits send its move."""
        if self._search is not None:
            self._search.stopped.set()
            self._search.released.set()
            self._search = None

    def _new_game(self) -> None:
        self._seeds = random.Random(self._options.seed or None)

    def _ready(self) -> None:
        try:
            self._opened(self._options.model or None)
        except Exception as error:
            self._fault(error)
        self._tried.set()
        self._say("readyok")

    def _play(self, wanted: _Search) -> None:
        """Searches, and sends `bestmove`; whatever goes wrong, a GUI that waits for it gets one."""
        from movemask.uci.search import search  # imports numpy, which `uciok` need not wait for

        lines, seconds = ["bestmove (none)"], 0.0
        try:
            if wanted.board is None:
                self._note("there is no position: the last one could not be read")
            else:
                source = self._opened(self._options.model or None)
                lines, seconds = search(wanted.board, wanted.go, self._options, source, self._seeds)
        except Exception as error:
            self._fault(error)
        self._say(*lines[:-1])
        if wanted.go.waits:
            wanted.released.wait()
        wanted.stopped.wait(wanted.started + seconds - time.monotonic())
        self._say(lines[-1])

    def _fault(self, error: Exception) -> None:
        """Tells an error; also one that is a bug, which must not cost the game without a word."""
        self._note(str(error) if isinstance(error, MovemaskError) else f"{type(error).__name__}: {error}")

    def _note(self, text: str) -> None:
        """A line for people."""
        self._say(f"info string {' '.join(text.split())}")

    def _say(self, *lines: str) -> None:
        if lines:
            with self._lock:
                self._out.write("\n".join(lines) + "\n")
                self._out.flush()
