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

_NUMBERS = ("wtime", "btime", "winc", "binc", "movestogo", "depth", "nodes", "mate", "movetime")
_WORDS = frozenset((*_NUMBERS, "searchmoves", "infinite", "ponder"))


@dataclass(frozen=True, slots=True)
class Go:
    """A `go`: what it says of the search and of the clocks, and what of it could not be understood.

    numbers : by their words; times are in milliseconds. Of the limits only `nodes` counts: the network is asked once.
    """

    searchmoves: Sequence[str] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    waits: bool = False  # with `infinite` and `ponder`, for `stop` or `ponderhit`
    faults: Sequence[str] = ()

    def clock(self, turn: chess.Color) -> Clock | None:
        """The clock of a side; None if the GUI has told none."""
        remaining, increment = ("wtime", "winc") if turn == chess.WHITE else ("btime", "binc")
        if remaining not in self.numbers:
            return None
        from movemask.think_time import LONGEST, Clock  # imports numpy, which `uciok` need not wait for

        seconds, gained = (min(max(0, self.numbers.get(name, 0)) / 1000, LONGEST) for name in (remaining, increment))
        return Clock(seconds, gained, self.numbers.get("movestogo"))


def tokens_of(line: str) -> list[str]:
    """The tokens of a line from its first known command; empty if there is none."""
    tokens = line.split()
    first = next((place for place, token in enumerate(tokens) if token in COMMANDS), len(tokens))
    return tokens[first:]


def read_position(tokens: Sequence[str], *, chess960: bool) -> chess.Board:
    """The board of `position [startpos | fen FEN] [moves …]`, with its history; ValueError or a RequestError."""
    from movemask.board.moves import read_move  # imports numpy, which `uciok` need not wait for
    from movemask.board.position import START_WORD, Position

    at = tokens.index("moves") if "moves" in tokens else len(tokens)
    kind, fields = tokens[:1], tokens[1:at]
    if kind != [START_WORD] and (kind != ["fen"] or not fields):
        raise ValueError("position: expected startpos or fen FEN")
    fen = " ".join(fields) if kind == ["fen"] else START_WORD
    board = Position.read(fen, chess960=chess960).board.copy()
    for number, text in enumerate(tokens[at + 1 :], 1):
        try:
            move, _ = read_move(board, text)
        except ValueError as error:
            raise ValueError(f"position: move {number}, {text[:20]!r}, {error} in {board.fen()!r}") from None
        board.push(move)
    return board


def read_go(tokens: Sequence[str]) -> Go:
    """What a `go` asks for."""
    searchmoves: list[str] = []
    numbers: dict[str, int] = {}
    faults: list[str] = []
    words = list(reversed(tokens))
    while words:
        token = words.pop()
        if token in _NUMBERS:
            if words and words[-1].removeprefix("-").isdecimal():
                numbers[token] = int(words.pop()[:18])
        elif token == "searchmoves":
            while words and words[-1] not in _WORDS:
                searchmoves.append(words.pop())
        elif token not in _WORDS:
            faults.append(f"go: {token[:20]!r} is not known")
    return Go(searchmoves, numbers, bool({"infinite", "ponder"} & set(tokens)), faults[:MOST_FAULTS])


def read_setoption(tokens: Sequence[str]) -> tuple[str, str]:
    """Name and value of `setoption name … [value …]`; ValueError."""
    if tokens[:1] != ["name"] or len(tokens) < 2:
        raise ValueError("setoption: expected name NAME [value VALUE]")
    at = tokens.index("value") if "value" in tokens else len(tokens)
    return " ".join(tokens[1:at]), " ".join(tokens[at + 1 :])
