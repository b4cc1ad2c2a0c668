"""Finds the FEN in a text: in an address, quoted, numbered, with underscores for blanks, or with EPD operations.

python-chess then reads the FEN and describes the faults of its fields. Standard: Steven J. Edwards, "Portable Game
Notation Specification and Implementation Guide", 1994, section 16 (FEN and EPD).
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, unquote_plus, urlsplit

import chess

from movemask.errors import InvalidFen, UnsupportedVariant

#: The required fields of a FEN, in order. Only the two counters may be left out, as in EPD.
FEN_FIELDS = ("piece placement", "side to move", "castling rights", "en-passant square")

#: A FEN is searched for in this many characters of a line. An EPD line is shorter.
_LINE_LENGTH = 10_000

#: Word processors replace hyphens with dashes, and web pages add characters without width.
_TYPOGRAPHY = str.maketrans(
    {dash: "-" for dash in "\u2010\u2011\u2012\u2013\u2014\u2212"} | {mark: "" for mark in "\u200b\u2060\ufeff"}
)

#: Characters around a FEN. Neither a placement nor a counter begins or ends with one.
_AROUND = " \t\r\n\f\v\xa0\"'`\u00b4\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a[](){}<>;,."

#: A FEN with all six fields and a single blank between them. It needs no search.
_PLAIN = re.compile(r"[1-8PNBRQKpnbrqk/]+ [wb] [A-Za-z-]+ [a-h1-8-]+ \d+ \d+", re.ASCII)

#: A FEN's placement of pieces.
PLACEMENT = re.compile(r"(?<![A-Za-z0-9])(?:[1-8pnbrqkPNBRQK~]{1,16}/){7}[1-8pnbrqkPNBRQK~]{1,16}")

#: The rest of a list's column after the placement. A semicolon begins EPD operations or a remark.
_REST_OF_COLUMN = re.compile(r'(?:[^,|\t;"]|"[^"]*"?)*(?:;.*)?')

_SEPARATOR = re.compile(r"[,;|\t]")
_SIDE_COLUMN = re.compile(r"[,;|\t][wb][,;|\t]")

#: Text before a placement: a list item's number or bullet, "FEN:", UCI's "position fen" or a PGN tag's name.
_LEAD = re.compile(
    r"(?:[#№]?\d{1,9}(?:[.):\]]+\s*|\s+)|[-*•]\s+|(?:position\s+)?fen\b[\s:=\"'\u201c]*)+(?=\S*/)", re.IGNORECASE
)

_ADDRESS = re.compile(r"[a-z]+://|(?:[\w-]+\.)*(?:lichess\.org|lichess\.dev|chess\.com)/", re.IGNORECASE)

#: Start of the FEN in lichess's paths, also of a FEN with a faulty placement.
_LICHESS = re.compile(r"/(?:analysis|editor)/(?:(?:standard|fromPosition|chess960)/)?(?=[1-8pnbrqkPNBRQK]+[/_ ])")

#: Variants by their names in lichess's addresses, without standard chess and Chess960.
_OTHER_VARIANTS = frozenset(
    ("antichess", "atomic", "crazyhouse", "horde", "kingofthehill", "racingkings", "threecheck", "bughouse")
)

#: The standard's EPD opcodes, and the node counts of perft suites (`D1 20`).
_OPCODE = re.compile(
    r"ac[dns]|am|bm|c[0-9]|ce|dm|draw_(?:accept|claim|offer|reject)|eco|fmvn|hmvc|id|nic|noop|p[mv]|rc|resign|sm"
    r"|tc(?:gs|ri|si)|v[0-9]|[dD][0-9]+"
)

#: Any opcode: accepted after a position if semicolons end the operations.
_ANY_OPCODE = re.compile(r"[A-Za-z]\w*")


#: An operation that is a counter; or a quoted operand, in which its words mean nothing.
_COUNTER = re.compile(r'"[^"]*"?|\b(hmvc|fmvn)\s+([^\s;]+)')

#: A move in UCI or SAN, with or without its number.
_MOVE = re.compile(
    r"(?:\d+\.+)?(?:[a-h][1-8][a-h][1-8][nbrq]?|[KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](?:=?[QRBN])?|[O0]-[O0](?:-[O0])?)"
    r"[+#!?]*"
)
_MOVE_NUMBER = re.compile(r"\d+\.*")
_PGN_TAG = re.compile(r'\s*\[\w+\s+"')

#: What to do with moves. UCI has a command of its own for them.
MOVES_HINT = "; send them as `moves`, or a PGN to /v1/games"
_EXAMPLE = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"


class FoundFen(NamedTuple):
    """A FEN with single blanks between its fields, and whether it stood in an address of Chess960."""

    fen: str
    chess960: bool = False


def find_fen(text: str) -> FoundFen:
    """The FEN in a text that holds nothing else. python-chess has not checked its fields yet.

    Understands quotation marks, list numbers, underscores for blanks, addresses of lichess and chess.com, EPD
    operations, and remarks after a semicolon. The operations `hmvc` and `fmvn` are the counters.

    Raises InvalidFen, which names a missing field, or UnsupportedVariant.
    """
    return FoundFen(text) if _PLAIN.fullmatch(text) else _found(text, text, columns=False)


def find_fen_in_line(line: str) -> FoundFen:
    """The FEN in a line of a list. Like `find_fen`, but the line may have other columns.

    Commas, tabs or bars separate columns, and any column may be the FEN. Words after a full FEN are columns too.
    """
    return _found(_column_with_fen(line[:_LINE_LENGTH]), line, columns=True)


def _column_with_fen(line: str) -> str:
    placement = PLACEMENT.search(line)
    if placement is None:
        return _SEPARATOR.split(line, maxsplit=1)[0]
    start = 1 + max(line.rfind(separator, 0, placement.start()) for separator in ',;|\t"')
    if line[:start].endswith('"'):
        return line[start:].partition('"')[0]
    if _SIDE_COLUMN.match(line, placement.end()):  # each field has a column of its own
        return _SEPARATOR.sub(" ", line[start:])
    end = _REST_OF_COLUMN.match(line, placement.end())
    return line[start : end.end() if end else None]


def _found(text: str, original: str, *, columns: bool) -> FoundFen:
    rest = text.translate(_TYPOGRAPHY).strip(_AROUND)
    rest, chess960 = _without_lead(rest), False
    if _ADDRESS.match(rest):
        rest, chess960 = _in_address(rest, original)
    elif "/" in (first := rest[:_LINE_LENGTH].partition(" ")[0]) and any(mark in first for mark in "_%+"):
        rest = unquote_plus(rest).replace("_", " ")
    position, semicolon, _ = _without_lead(rest.strip(_AROUND)).partition(";")
    fields = position.split()
    if not fields:
        return FoundFen("")
    _check_fields(fields, original)
    required, others = fields[: len(FEN_FIELDS)], fields[len(FEN_FIELDS) :]
    opcode = _ANY_OPCODE if semicolon else _OPCODE
    if others and opcode.fullmatch(others[0]):
        return FoundFen(" ".join([*required, *_counters_of_operations(rest)]), chess960)
    counters, words = others[:2], others[2:]
    if words and not columns and not opcode.fullmatch(words[0]):
        try:
            chess.Board(" ".join([*required, *counters]))
        except ValueError as error:  # an earlier fault
            raise InvalidFen(f"fen: {error}") from None
        raise InvalidFen(f"fen: {original!r} continues after the move number: {' '.join(words)!r} is not part of a FEN")
    return FoundFen(" ".join([*required, *counters]), chess960)


def looks_like_moves(text: str) -> bool:
    """Whether a text begins with moves or is a PGN."""
    first = [word for word in text[:_LINE_LENGTH].replace(",", " ").split()[:4] if not _MOVE_NUMBER.fullmatch(word)]
    return _PGN_TAG.match(text) is not None or (first != [] and all(map(_MOVE.fullmatch, first)))


def _without_lead(text: str) -> str:
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


def _in_address(address: str, original: str) -> tuple[str, bool]:
    """The FEN in an address, and whether the address is of Chess960. Raises InvalidFen or UnsupportedVariant."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
    except ValueError as error:
        raise InvalidFen(f"fen: the address {original!r} cannot be read: {error}") from None
    values = {name.lower(): given[-1] for name, given in parse_qs(f"{parts.query}&{parts.fragment}").items()}
    path = unquote(parts.path)
    if placement := PLACEMENT.search(path):
        start = placement.start()
    else:
        prefix = _LICHESS.search(path)
        start = prefix.end() if prefix else len(path)
    variants = {values.get("variant", "").lower(), *path[:start].lower().split("/")}
    for variant in _OTHER_VARIANTS & variants:
        raise UnsupportedVariant(f"fen: the address {original!r} is of {variant}; only chess and Chess960 are known")
    fen = values.get("fen", path[start:])
    if not fen:
        raise InvalidFen(
            f"fen: the address {original!r} holds no FEN; lichess writes it after /analysis/ or /editor/, other sites "
            "as ?fen=…"
        )
    return fen.replace("_", " "), "chess960" in variants


def _check_fields(fields: list[str], original: str) -> None:
    """Raises InvalidFen for a text without ranks, or that names the first faulty field if required ones are missing."""
    if "/" not in fields[0]:
        if looks_like_moves(original.strip(_AROUND)) or looks_like_moves(original):
            raise InvalidFen(f"fen: {original!r} looks like moves, not like a FEN{MOVES_HINT}")
        raise InvalidFen(f"fen: {original!r} is not a FEN, such as {_EXAMPLE!r}")
    known_turn = fields[1:2] in ([], ["w"], ["b"])
    if len(fields) < len(FEN_FIELDS):
        if not known_turn:
            raise InvalidFen(f"fen: expected 'w' or 'b' for turn part of fen: {original!r}")
        *missing, last = FEN_FIELDS[len(fields) :]
        names = f"{', '.join(missing)} or {last}" if missing else last
        raise InvalidFen(f"fen: {original!r} is cut short: no {names}")
    if known_turn and fields[3].isdecimal():
        missing_one = "no en-passant square" if fields[2] != "-" else "no castling rights or no en-passant square"
        raise InvalidFen(f"fen: {original!r} lacks a field: {missing_one} before the half-move clock {fields[3]}")


def _counters_of_operations(text: str) -> list[str]:
    """Half-move clock and move number from the EPD operations `hmvc` and `fmvn`; empty without both."""
    counters = {name: value for name, value in _COUNTER.findall(text) if name}
    return [counters.get("hmvc", "0"), counters.get("fmvn", "1")] if counters else []
