"""`assert_masked`: tests the mask of any program's move distribution, in any test runner.

It needs numpy and python-chess, and nothing else of movemask's dependencies.
"""

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
from movemask.leakage.judgement import GIVEN, Judgement
from movemask.leakage.patterns import Pattern

Policy = Callable[[str], Any] | Mapping[str, Any]

_LINES = files("movemask").joinpath("tricky_positions.txt").read_text().splitlines()
_WHITE_TO_MOVE: dict[str, str] = dict(line.split(" | ") for line in _LINES)

#: The positions of the test by FEN, with the difficulty that each shows: for White, and mirrored for Black.
POSITIONS: Mapping[str, str] = _WHITE_TO_MOVE | {
    chess.Board(fen).mirror().fen(en_passant="fen"): shows for fen, shows in _WHITE_TO_MOVE.items()
}

#: A sum of probabilities may be off by this much, because float32 rounds.
_ROUNDING = 1e-5

#: If a move has this probability, other legal moves may have 0: a network that never saw eight queens underflows.
_CERTAIN = 0.99

#: Limits of the report: positions and known mistakes, moves of a position, characters of a line.
_POSITIONS_SHOWN, _MOVES_SHOWN, _WIDTH = 3, 4, 400


class _Fault(NamedTuple):
    """The faults of one position. `badness` is the misplaced probability; 2 if there is no distribution at all."""

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
    """Raises AssertionError unless a policy is masked correctly; the message says how much leaked, where and why.

    In every position, illegal moves may have at most `at_most` in all, and the probabilities of the legal moves sum to
    1. Each legal move has more than 0, unless a move has 99 %.

    Parameters
    ----------
    policy : a function of a FEN, or a mapping by FEN. It gives `{uci: probability}`, or probabilities `[A]` or
        `[1, A]`. Castling is e1g1; in Chess960 the king takes its rook.
    positions : FENs of positions with a legal move; POSITIONS if None
    at_most : the largest sum of illegal probabilities. The sum of the legal ones may differ from 1 by `at_most` or 1e-5
    vocabulary : name of the vocabulary of `[A]`, such as `lc0-1858`
    chess960 : read the FENs as Chess960; without it, a FEN that only Chess960 allows is an InvalidPosition

    Raises a MovemaskError for arguments that test nothing.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    slots = None if vocabulary is None else vocabularies.vocabulary(vocabulary)
    if isinstance(positions, str) or not isinstance(positions, Iterable | None):
        raise InvalidParameter(f"positions: {positions!r:.60} is not a list of FENs")
    fens = map(_fen, POSITIONS if positions is None else positions)
    position_of = {fen: Position.read(fen, chess960=chess960) for fen in fens}
    if not position_of or not 0 <= at_most < 1:
        raise InvalidParameter(
            f"nothing could fail with {len(position_of)} positions and at_most {at_most}"
        )
    for fen, position in position_of.items():
        if not has_legal_move(position.board):
            raise InvalidParameter(
                f"positions: {fen!r} has no legal move, so there is no policy to test"
            )
    results = (
        _fault(policy, fen, position, slots, at_most) for fen, position in position_of.items()
    )
    faults = sorted((fault for fault in results if fault), key=lambda fault: -fault.badness)
    if faults:
        raise AssertionError(_report(faults, len(position_of), at_most)) from faults[0].error


def _fen(position: Any) -> str:
    """Returns an item of `positions`.

    Raises InvalidParameter unless it is a FEN, and UnsupportedVariant.
    """
    if isinstance(position, chess.Board):
        check_variant(position, "positions")
        raise InvalidParameter(
            "positions: a chess.Board; pass its FEN, which the policy will be called with"
        )
    if not isinstance(position, str):
        raise InvalidParameter(f"positions: {position!r:.60} is not a FEN")
    return position


def _fault(
    policy: Policy, fen: str, position: Position, slots: Vocabulary | None, at_most: float
) -> _Fault | None:
    """Returns the faults of a policy in one position; None if it has none."""
    try:
        answer = policy[fen] if isinstance(policy, Mapping) else policy(fen)
    except Exception as error:
        return _Fault(fen, 2, f"the policy raised {type(error).__name__}: {error}", error=error)
    if str(dtype := getattr(answer, "dtype", "")).endswith("bfloat16"):
        raise InvalidParameter(
            f"the policy returns {dtype}, which numpy cannot read and which rounds probabilities to three digits: "
            "write logits.float() before the softmax"
        )
    try:
        judgement = _judgement(answer, position, slots)
    except (MovemaskError, TypeError, ValueError) as error:
        return _Fault(fen, 2, f"not a distribution: {error}")
    leaked = judgement.figures[GIVEN].leaked or 0.0
    legal = (judgement.total or 0.0) * (1 - leaked)
    sentences = []
    if leaked > at_most:
        moves = [
            f"{move.uci} {move.probability:.3g} ({move.cause.value})" for move in judgement.illegal
        ]
        sentences.append(f"illegal moves have {leaked:.3g}: {_some(moves)}")
    if abs(legal - 1) > max(at_most, _ROUNDING):
        sentences.append(f"the legal moves sum to {legal:.6g}")
    if (
        judgement.missing
        and np.max([*answer.values()] if isinstance(answer, Mapping) else answer) < _CERTAIN
    ):
        sentences.append(f"legal moves with 0: {_some(judgement.missing)}")
    if not sentences:
        return None
    # Rounding, as of float16, also resembles a mistake; without illegal moves there is none to name.
    patterns = [
        pattern for pattern in judgement.patterns if leaked > at_most and not pattern.on_legal
    ]
    return _Fault(fen, max(leaked, abs(1 - legal)), "; ".join(sentences), patterns)


def _judgement(answer: Any, position: Position, slots: Vocabulary | None) -> Judgement:
    """Returns the judgement of a policy's return value; MovemaskError, TypeError or ValueError if
    it is no distribution.
    """
    if isinstance(answer, Mapping):
        castling = Castling.KING_TAKES_ROOK if position.chess960 else Castling.KING_TWO_SQUARES
        by_uci = {str(move): float(p) for move, p in answer.items()}
        return judge_policy(position, by_uci, castling=castling, threshold=0, named=len(by_uci))
    if slots is None:
        names = ", ".join(vocabularies.vocabulary_names())
        raise TypeError(
            f"{type(answer).__name__} is not a dict of moves; name a vector's vocabulary=, one of {names}"
        )
    vector = np.asarray(answer, dtype=np.float64)
    if vector.shape == (1, len(slots)):  # a batch of one
        vector = vector[0]
    return judge_slots(
        "probabilities", vector.tolist(), position, slots, threshold=0, named=len(slots)
    )


def _report(faults: Sequence[_Fault], total: int, at_most: float) -> str:
    """At most ten lines: the worst positions, and the known mistakes that the numbers resemble."""
    allowed = f"illegal moves may have at most {at_most:g}"
    lines = [f"the policy fails in {len(faults)} of {total} positions ({allowed}); the worst:"]
    distinct: dict[
        str, _Fault
    ] = {}  # by difficulty: the worse of the two positions, White's and Black's
    for fault in faults:
        distinct.setdefault(POSITIONS.get(fault.fen, fault.fen), fault)
    for difficulty, fault in list(distinct.items())[:_POSITIONS_SHOWN]:
        lines.append(f"  {fault.fen}" + (f" ({difficulty})" if difficulty != fault.fen else ""))
        lines.append(textwrap.indent(textwrap.shorten(fault.words, _WIDTH), "    "))
    patterns = [pattern for fault in faults for pattern in fault.patterns]
    for name, count in Counter(pattern.name for pattern in patterns).most_common(_POSITIONS_SHOWN):
        detail = next(pattern.detail for pattern in patterns if pattern.name == name)
        lines.append(textwrap.shorten(f"looks like {name} ({count} positions): {detail}", _WIDTH))
    return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOVES_SHOWN:,} more" if len(names) > _MOVES_SHOWN else ""
    return ", ".join(names[:_MOVES_SHOWN]) + more
