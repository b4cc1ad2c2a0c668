"""`assert_masked`: a test of anybody's move distribution, for any test runner; needs numpy and python-chess alone."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import chess
import numpy as np

from movemask.board.moves import has_legal_move
from movemask.board.position import Position
from movemask.board.variants import check_variant
from movemask.encoding import vocabularies
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.errors import InvalidParameter, MovemaskError
from movemask.leakage.judge_policy import judge_policy
from movemask.leakage.judge_slots import judge_slots
from movemask.leakage.patterns import Pattern
from movemask.leakage.verdict import GIVEN, Verdict

Policy = Callable[[str], Any] | Mapping[str, Any]

_LINES = files("movemask").joinpath("tricky_positions.txt").read_text().splitlines()
_WHITE_TO_MOVE: dict[str, str] = dict(line.split(" | ") for line in _LINES)

#: The positions that are tried, by FEN, and what each shows; each once for White and, mirrored, once for Black.
POSITIONS: Mapping[str, str] = _WHITE_TO_MOVE | {
    chess.Board(fen).mirror().fen(en_passant="fen"): shows for fen, shows in _WHITE_TO_MOVE.items()
}

_ROUNDING = 1e-5  # what rounding in float32 may take from a sum
_CERTAIN = 0.99  # on one move; then the rest may underflow, as with a network that has never seen eight queens
_SHOWN, _NAMED, _WIDTH = 3, 4, 400  # positions and known mistakes, moves of a position, characters of a line


class _Fault(NamedTuple):
    """What is wrong in one position; `badness` is misplaced probability, or 2 if there is no distribution."""

    fen: str
    badness: float
    words: str
    patterns: Sequence[Pattern] = ()
    error: Exception | None = None


def assert_masked(
    policy: Policy,
    positions: Iterable[str] | None = None,
    at_most: float = 1e-6,
    *,
    vocabulary: str | None = None,
    chess960: bool = False,
) -> None:
    """Raises AssertionError, which says what leaked, where and why, unless the policy is masked correctly: illegal
    moves have at most `at_most`, the legal moves sum to 1, and each has more than 0, or one has 99 %.

    Parameters
    ----------
    policy : FEN → `{uci: probability}`, or → probabilities `[A]`; a function, or a map of FENs. In UCI, castling is
        e1g1; in Chess960 the king takes its rook.
    positions : FENs with a legal move; those of POSITIONS if None
    at_most : the largest illegal share; the sum may differ from 1 by as much, or by 1e-5, for rounding in float32
    vocabulary : which moves `[A]` stand for, such as `lc0-1858`
    chess960 : read the FENs as Chess960; without it, a FEN that only Chess960 allows is an InvalidPosition

    Raises a MovemaskError for arguments with which nothing would be tested.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    words = None if vocabulary is None else vocabularies.vocabulary(vocabulary)
    if isinstance(positions, str) or not isinstance(positions, Iterable | None):
        raise InvalidParameter(f"positions: {positions!r:.60} is not a list of FENs")
    fens = map(_fen, POSITIONS if positions is None else positions)
    tried = {fen: Position.read(fen, chess960=chess960) for fen in fens}
    if not tried or not 0 <= at_most < 1:
        raise InvalidParameter(f"nothing could fail with {len(tried)} positions and at_most {at_most}")
    for fen, position in tried.items():
        if not has_legal_move(position.board):
            raise InvalidParameter(f"positions: {fen!r} has no legal move, so there is no policy to test")
    found = (_fault(policy, fen, position, words, at_most) for fen, position in tried.items())
    faults = sorted((fault for fault in found if fault), key=lambda fault: -fault.badness)
    if faults:
        raise AssertionError(_report(faults, len(tried), at_most)) from faults[0].error


def _fen(position: Any) -> str:
    """A position that is a FEN; raises UnsupportedVariant, InvalidParameter."""
    if isinstance(position, chess.Board):
        check_variant(position, "positions")
        raise InvalidParameter("positions: a chess.Board; pass its FEN, which the policy will be called with")
    if not isinstance(position, str):
        raise InvalidParameter(f"positions: {position!r:.60} is not a FEN")
    return position


def _fault(policy: Policy, fen: str, position: Position, words: Vocabulary | None, at_most: float) -> _Fault | None:
    try:
        answer = policy[fen] if isinstance(policy, Mapping) else policy(fen)
    except Exception as error:
        return _Fault(fen, 2, f"the policy raised {type(error).__name__}: {error}", error=error)
    try:
        verdict = _verdict(answer, position, words)
    except (MovemaskError, TypeError, ValueError) as error:
        return _Fault(fen, 2, f"not a distribution: {error}")
    leaked = verdict.figures[GIVEN].leaked or 0.0
    legal = (verdict.total or 0.0) * (1 - leaked)
    said = []
    if leaked > at_most:
        moves = [f"{one.uci} {one.probability:.3g} ({one.cause.value})" for one in verdict.illegal]
        said.append(f"illegal moves have {leaked:.3g}: {_some(moves)}")
    if abs(legal - 1) > max(at_most, _ROUNDING):
        said.append(f"the legal moves sum to {legal:.6g}")
    if verdict.missing and max(answer.values() if isinstance(answer, Mapping) else answer) < _CERTAIN:
        said.append(f"legal moves with 0: {_some(verdict.missing)}")
    return _Fault(fen, max(leaked, abs(1 - legal)), "; ".join(said), verdict.patterns) if said else None


def _verdict(answer: Any, position: Position, words: Vocabulary | None) -> Verdict:
    """The verdict on what a policy returned. MovemaskError, TypeError or ValueError if that is no distribution."""
    if isinstance(answer, Mapping):
        castling = Castling.KING_TAKES_ROOK if position.chess960 else Castling.KING_TWO_SQUARES
        by_uci = {str(move): float(p) for move, p in answer.items()}
        return judge_policy(position, by_uci, castling=castling, least=0, named=len(by_uci))
    if words is None:
        names = ", ".join(vocabularies.vocabulary_names())
        raise TypeError(f"{type(answer).__name__} is not a dict of moves; name a vector's vocabulary=, one of {names}")
    vector = np.asarray(answer, dtype=np.float64).tolist()
    return judge_slots("probabilities", vector, position, words, least=0, named=len(words))


def _report(faults: Sequence[_Fault], tried: int, at_most: float) -> str:
    """At most ten lines: the worst positions, and the known mistakes that they look like."""
    allowed = f"illegal moves may have at most {at_most:g}"
    lines = [f"the policy fails in {len(faults)} of {tried} positions ({allowed}); the worst:"]
    distinct: dict[str, _Fault] = {}  # by what a position shows: the worse of White's and Black's
    for fault in faults:
        distinct.setdefault(POSITIONS.get(fault.fen, fault.fen), fault)
    for shows, fault in list(distinct.items())[:_SHOWN]:
        lines.append(f"  {fault.fen}" + (f" ({shows})" if shows != fault.fen else ""))
        lines.append(textwrap.indent(textwrap.shorten(fault.words, _WIDTH), "    "))
    patterns = [pattern for fault in faults for pattern in fault.patterns]
    for name, count in Counter(pattern.name for pattern in patterns).most_common(_SHOWN):
        detail = next(pattern.detail for pattern in patterns if pattern.name == name)
        lines.append(textwrap.shorten(f"looks like {name} ({count} positions): {detail}", _WIDTH))
    return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
