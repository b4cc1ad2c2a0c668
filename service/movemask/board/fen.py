"""Reads a FEN or EPD, and finds one in a longer text. python-chess checks the fields.

Standard: Steven J. Edwards, "Portable Game Notation Specification and Implementation Guide", 1994, section 16.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from movemask.errors import InvalidFen, UnsupportedVariant

#: The required fields of a FEN, in order. Only the two counters may be left out, as in EPD.
FEN_FIELDS = ("piece placement", "side to move", "castling rights", "en-passant square")

#: A FEN's placement of pieces.
PLACEMENT = re.compile(r"(?<![A-Za-z0-9])(?:[1-8pnbrqkPNBRQK~]{1,16}/){7}[1-8pnbrqkPNBRQK~]{1,16}")

_RANKS = frozenset("12345678pnbrqkPNBRQK~/")
_COUNTER = r"-?[^\W_]+(?:\.[^\W_]+)*"

#: A FEN in a text, with the same separator between all its fields.
_IN_TEXT = re.compile(
    rf"({PLACEMENT.pattern})(?P<sep>[ \t_,;|])(?P=sep)*([wb])(?P=sep)+([A-Za-z-]+)(?P=sep)+(-|[a-h][1-8])"
    rf"(?:(?P=sep)+(?P<clock>{_COUNTER})(?:(?P=sep)+({_COUNTER}))?)?"
)

#: The variant that an address of lichess names. No variant's name could be a rank.
_VARIANT = re.compile(
    r"(?:/(?:analysis|editor)/|[?&#]variant=)(?![pnbrqk1-8]+\b)(\w+)", re.IGNORECASE
)

#: The beginning of an EPD operation such as `bm`, which stands where a FEN has its half-move clock. One such as `c0`
#: needs the semicolon of an EPD: a FEN's damaged clock may look like it.
_OPCODE = re.compile(r"[A-Za-z]\w")

#: An operation that is a counter; or a quoted operand, in which its words mean nothing.
_COUNTER_OPERATION = re.compile(r'"[^"]*"?|\b(hmvc|fmvn)\s+([^\s;]+)')

#: The first tag of a PGN, or a first move in UCI or SAN, with or without its number.
_MOVES = re.compile(
    r'\s*(?:\[\w+\s+"|(?:\d+\.+\s*)?'
    r"(?:[a-h][1-8][a-h][1-8][nbrq]?|[KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](?:=?[QRBN])?|[O0]-[O0](?:-[O0])?)(?:e\.?p\.?)?[+#!?]*(?:[\s,]|$))"
)

#: What to do with moves. UCI has a command of its own for them.
MOVES_HINT = "; send them as `moves`, or a PGN to /v1/games"
_EXAMPLE = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"


def read_fen(text: str) -> str:
    """Returns the fields of a FEN or EPD with single blanks between them.

    python-chess has not checked them yet.

    Underscores may stand for all blanks. The EPD operations `hmvc` and `fmvn` are the counters.

    Raises InvalidFen for a text that is none, or that lacks required fields.
    """
    fields = (text if " " in text else text.replace("_", " ")).partition(";")[0].split()
    if not fields:
        return ""
    short = len(fields) < len(FEN_FIELDS)
    if "/" not in fields[0] or (short and not _RANKS.issuperset(fields[0])):
        if looks_like_moves(text.removeprefix("startpos moves ")):
            raise InvalidFen(f"fen: {text!r} looks like moves, not like a FEN{MOVES_HINT}")
        raise InvalidFen(f"fen: {text!r} is not a FEN, such as {_EXAMPLE!r}")
    if short:
        missing = " or ".join(", ".join(FEN_FIELDS[len(fields) :]).rsplit(", ", 1))
        raise InvalidFen(f"fen: {text!r} is cut short: no {missing}")
    required, counters = fields[:4], fields[4:]
    if required[1] in ("w", "b") and required[3].isdecimal():
        missing = (
            "no en-passant square"
            if required[2] != "-"
            else "no castling rights or no en-passant square"
        )
        raise InvalidFen(
            f"fen: {text!r} lacks a field: {missing} before the half-move clock {required[3]}"
        )
    if counters and _OPCODE.match(counters[0]) and (";" in text or counters[0][1].isalpha()):
        values = {name: value for name, value in _COUNTER_OPERATION.findall(text) if name}
        counters = [values.get("hmvc", "0"), values.get("fmvn", "1")]
    numbers, rest = counters[:2], " ".join(counters[2:])
    if all(map(str.isdecimal, numbers)) and looks_like_moves(rest.removeprefix("moves ")):
        raise InvalidFen(f"fen: {text!r} has moves behind the FEN{MOVES_HINT}")
    return " ".join([*required, *counters])


def fen_in(text: str) -> tuple[str, bool]:
    """Returns the FEN or EPD in a text, and whether the text is an address of Chess960; the text
    itself if it holds no FEN.

    The text may be an address of lichess or chess.com, or a line with other columns. Raises
    UnsupportedVariant.
    """
    decoded = unquote_plus(text)
    match = _IN_TEXT.search(decoded)
    if match is None:
        return text, False
    variant = _VARIANT.search(text)
    if variant and variant[1].lower() not in ("standard", "fromposition", "chess960"):
        raise UnsupportedVariant(
            f"fen: {text[:200]!r} is of {variant[1][:20]}; only chess and Chess960 are known"
        )
    placement, _, turn, castling, en_passant, clock, number = match.groups()
    if clock and _OPCODE.match(clock):
        clock, number = decoded[match.start("clock") :], None
    fen = " ".join(filter(None, (placement, turn, castling, en_passant, clock, number)))
    return fen, variant is not None and variant[1].lower() == "chess960"


def looks_like_moves(text: str) -> bool:
    """Returns whether a text begins with a move or is a PGN."""
    return _MOVES.match(text) is not None
