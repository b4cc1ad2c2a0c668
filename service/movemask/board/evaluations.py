"""Evaluations in the comments of a PGN: `[%eval …]`, and ChessBase's `[%evp …]` of a whole game."""

from __future__ import annotations

import re

import chess
from chess.engine import Cp, Mate, PovScore, Score

#: The beginning of both commands.
PREFIX = "[%ev"

_EVAL = re.compile(r"\s?\[%eval\b([^\[\]]*)\]")
_PROFILE = re.compile(r"\[%evp\b([^\[\]]*)\]")

#: White's pawns or moves to mate. A comma before one or two digits is a decimal comma, unless there is a point; behind
#: another comma or a slash is the depth.
_PAWNS = re.compile(
    r"([+-]?(?:\d{0,6}[.]\d{1,6}|\d{1,6},\d{1,2}|\d{1,6}[.]?))(?:\s*[,/]\s*\d{1,6})?"
)
_MATE = re.compile(r"([+-]?)\s*(?:#|[Mm](?:ate)?)\s*([+-]?)(\d{1,4})(?:\s*[,/]\s*\d{1,6})?")
_MINUS = str.maketrans("\u2212\u2013", "--")

_MOST_CENTIPAWNS = 100_000  # ChessBase writes a mate as about 30,000

_EXCERPT = 40  # characters of a faulty command in a message


def evaluation_of(comment: str, turn: chess.Color) -> PovScore | None:
    """Returns the first evaluation in a comment; None without one that can be read.

    turn : the side to move, which is mated if the evaluation is a mate in 0
    """
    for command in _EVAL.finditer(comment):
        if (score := _score(command[1], turn)) is not None:
            return PovScore(score, chess.WHITE)
    return None


def unreadable(comment: str) -> list[str]:
    """Returns the evaluations in a comment that cannot be read, such as `eval abc`.

    They come without brackets, and shortened.
    """
    faulty = [
        command[0].strip()
        for command in _EVAL.finditer(comment)
        if _score(command[1], True) is None
    ]
    faulty += [command[0] for command in _PROFILE.finditer(comment) if not _profile(command[1])]
    texts = [" ".join(text.strip("[%]").split()) for text in faulty]
    return [text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…" for text in texts]


def without_evaluations(comment: str) -> str:
    """Returns the comment without `[%eval …]`."""
    return _EVAL.sub("", comment).strip()


def profile_of(comment: str) -> dict[int, PovScore]:
    """Returns the evaluations in ChessBase's `[%evp first,last,…]` by ply.

    They are centipawns for White. Empty without them.
    """
    command = _PROFILE.search(comment)
    return {} if command is None else _profile(command[1])


def _score(text: str, turn: chess.Color) -> Score | None:
    """Returns White's score in a command; None if it cannot be read."""
    text = text.strip().translate(_MINUS)
    if mate := _MATE.fullmatch(text):
        if mate[1] and mate[2]:
            return None
        moves = int(mate[3])
        negative = "-" in (mate[1], mate[2])
        if not moves:  # python-chess's reading: whoever is to move is mated
            return Mate(0) if turn else -Mate(0)
        return Mate(-moves if negative else moves)
    if pawns := _PAWNS.fullmatch(text):
        return Cp(round(100 * float(pawns[1].replace(",", "."))))
    return None


def _profile(text: str) -> dict[int, PovScore]:
    try:
        first, last, *centipawns = map(int, text.translate(_MINUS).split(","))
    except ValueError:
        return {}
    if not 0 <= first <= last or len(centipawns) != last - first + 1:
        return {}
    if max(map(abs, centipawns)) > _MOST_CENTIPAWNS:
        return {}
    return {
        first + number: PovScore(Cp(value), chess.WHITE) for number, value in enumerate(centipawns)
    }
