"""Lines of the GUI, read: `position`, `go` and `setoption`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import chess

if TYPE_CHECKING:
    from movemask.think_time import Clock

#: Commands of the protocol. Others before one of them are skipped, as the protocol says.
COMMANDS = frozenset(
    ("uci", "debug", "isready", "setoption", "register", "ucinewgame", "position", "go", "stop", "ponderhit", "quit")
)

#: Faults of one command that are told.
MOST_FAULTS = 5

_CLOCKS = ("wtime", "btime", "winc", "binc", "movestogo")
_NUMBERS = (*_CLOCKS, "depth", "nodes", "mate", "movetime")
_WORDS = frozenset((*_NUMBERS, "searchmoves", "infinite", "ponder"))


@dataclass(frozen=True, slots=True)
class Go:
    """The limits of a search, and the clocks. Times are not needed for it: the network is asked once.

    clocks : what is known of wtime, btime, winc and binc, in milliseconds, and of movestogo
    """

    searchmoves: tuple[str, ...] = ()
    nodes: int | None = None
    infinite: bool = False
    ponder: bool = False
    clocks: Mapping[str, int] = field(default_factory=dict)

    def clock(self, turn: chess.Color) -> Clock | None:
        """The clock of a side; None if the GUI has told none."""
        remaining, increment = ("wtime", "winc") if turn == chess.WHITE else ("btime", "binc")
        if remaining not in self.clocks:
            return None
        from movemask.think_time import LONGEST, Clock  # imports numpy, which `uciok` need not wait for

        seconds, gained = (min(max(0, self.clocks.get(name, 0)) / 1000, LONGEST) for name in (remaining, increment))
        return Clock(seconds, gained, self.clocks.get("movestogo"))


def tokens_of(line: str) -> list[str]:
    """The tokens of a line from its first known command; empty if there is none."""
    tokens = line.split()
    first = next((place for place, token in enumerate(tokens) if token in COMMANDS), len(tokens))
    return tokens[first:]


def read_position(tokens: Sequence[str], *, chess960: bool) -> chess.Board:
    """The board of `position [startpos | fen FEN] [moves …]`, with its history; ValueError or a RequestError."""
    from movemask.board.moves import read_move  # imports numpy, which `uciok` need not wait for
    from movemask.board.position import START_WORD, Position

    words = list(tokens)
    moves: list[str] = []
    if "moves" in words:
        at = words.index("moves")
        words, moves = words[:at], words[at + 1 :]
    if words[:1] == [START_WORD]:
        fen = START_WORD
    elif words[:1] == ["fen"] and len(words) > 1:
        fen = " ".join(words[1:])
    else:
        raise ValueError("position: expected startpos or fen FEN")
    board = Position.read(fen, chess960=chess960).board.copy()
    for number, text in enumerate(moves, 1):
        try:
            move, _ = read_move(board, text)
        except ValueError as error:
            raise ValueError(f"position: move {number}, {text[:20]!r}, {error} in {board.fen()!r}") from None
        board.push(move)
    return board


def read_go(tokens: Sequence[str]) -> tuple[Go, list[str]]:
    """The limits of a `go`, and what in it could not be understood, which is left out."""
    searchmoves: list[str] = []
    nodes: int | None = None
    clocks: dict[str, int] = {}
    flags: set[str] = set()
    faults: list[str] = []
    words = list(reversed(tokens))
    while words:
        token = words.pop()
        if token in _NUMBERS:
            if words and words[-1].removeprefix("-").isdecimal():
                value = int(words.pop()[:18])
                if token == "nodes":
                    nodes = value
                elif token in _CLOCKS:
                    clocks[token] = value
        elif token == "searchmoves":
            while words and words[-1] not in _WORDS:
                searchmoves.append(words.pop())
        elif token in _WORDS:
            flags.add(token)
        else:
            faults.append(f"go: {token[:20]!r} is not known")
    return Go(tuple(searchmoves), nodes, "infinite" in flags, "ponder" in flags, clocks), faults


def read_setoption(tokens: Sequence[str]) -> tuple[str, str]:
    """Name and value of `setoption name … [value …]`; ValueError."""
    if tokens[:1] != ["name"] or len(tokens) < 2:
        raise ValueError("setoption: expected name NAME [value VALUE]")
    at = tokens.index("value") if "value" in tokens else len(tokens)
    return " ".join(tokens[1:at]), " ".join(tokens[at + 1 :])
