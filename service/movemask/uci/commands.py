"""Reads the lines that a GUI sends: `go`, `setoption` and the name of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Commands of the protocol. Words before a command are skipped, as the protocol requires.
COMMANDS = frozenset(
    (
        "uci",
        "debug",
        "isready",
        "setoption",
        "register",
        "ucinewgame",
        "position",
        "go",
        "stop",
        "ponderhit",
        "quit",
    )
)

#: Commands that people type, as in Stockfish. Such a command must fill the line.
TYPED_COMMANDS = frozenset(("d", "eval"))

#: Most faults of one command that are reported.
MOST_FAULTS = 5

_NUMBERS = ("wtime", "btime", "winc", "binc", "movestogo", "depth", "nodes", "mate", "movetime")
_WORDS = frozenset((*_NUMBERS, "searchmoves", "infinite", "ponder"))


#: Most seconds of `Go.patience`.
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Go:
    """The parameters of a `go` command.

    numbers : by name; times are in milliseconds. Of the limits only `nodes` has an effect: nothing is searched.
    faults : messages about unknown words
    """

    searchmoves: Sequence[str] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    infinite: bool = False
    ponder: bool = False
    faults: Sequence[str] = ()

    @property
    def waits(self) -> bool:
        """Whether the move may be sent only after `stop` or `ponderhit`."""
        return self.infinite or self.ponder

    def patience(self, white: bool) -> float:
        """Seconds for which a service that cannot be reached is asked again: half of the time for the move or game."""
        limit = self.numbers.get("movetime", self.numbers.get("wtime" if white else "btime"))
        return _PATIENCE if limit is None else min(_PATIENCE, limit / 2000)


def tokens_of(line: str) -> list[str]:
    """Returns the words of a line from its first known command on.

    Empty without a known command.
    """
    tokens = line.split()
    if len(tokens) == 1 and tokens[0] in TYPED_COMMANDS:
        return tokens
    first = next((place for place, token in enumerate(tokens) if token in COMMANDS), len(tokens))
    return tokens[first:]


def read_go(tokens: Sequence[str]) -> Go:
    """Returns the parameters in the words after `go`."""
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
    return Go(searchmoves, numbers, "infinite" in tokens, "ponder" in tokens, faults[:MOST_FAULTS])


def read_setoption(tokens: Sequence[str]) -> tuple[str, str]:
    """Returns name and value of `setoption name … [value …]`. Raises ValueError."""
    if tokens[:1] != ["name"] or len(tokens) < 2:
        raise ValueError("setoption: expected name NAME [value VALUE]")
    at = tokens.index("value") if "value" in tokens else len(tokens)
    return " ".join(tokens[1:at]), " ".join(tokens[at + 1 :])
