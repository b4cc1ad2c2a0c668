"""Audits other software's output for a position: logits, probabilities by slot, or a map of moves to probabilities.

It also looks for known mistakes that show in a single distribution (`Pattern`): flat illegal mass, mass on a move's
other slot, ranks flipped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import BIT
from movemask.board.moves import legal_moves, moves_of, uci_of
from movemask.board.position import Position, boards_of
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.errors import InvalidAudit
from movemask.leakage.causes import CAUSES, Cause, Written, causes_of
from movemask.leakage.explain import IllegalMass, explained
from movemask.leakage.kinds import KINDS, MULTIPLIED, RAW, SERVED, UNMIRRORED
from movemask.leakage.measure import Figure, HeavySlots, UnmaskedLogits, measure
from movemask.numeric.ragged import Float

#: The kind of leakage of outputs that are probabilities.
GIVEN = "given"

#: Sums that rounding, or a mask after the softmax, can explain; anything else is not a distribution.
_LEAST_SUM, _LARGEST_SUM = 1e-6, 1.1
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an audit. Slots are named by their own squares.

    figures : by kind; of logits every kind but `served`, of probabilities only `given`, the illegal share of their sum
    total : that sum; None for logits
    top : the move with the highest value
    missing : legal moves with probability 0
    causes : the illegal share by cause, all of it
    illegal : the heaviest illegal moves
    patterns : known mistakes that the output is typical of
    """

    figures: Mapping[str, Figure]
    total: float | None
    top: str
    top_is_legal: bool
    missing: tuple[str, ...]
    causes: Mapping[Cause, float]
    illegal: tuple[IllegalMass, ...]
    patterns: tuple[Pattern, ...]


def audited_slots(
    name: Literal["logits", "probabilities"],
    numbers: Sequence[float],
    position: Position,
    vocabulary: Vocabulary,
    *,
    least: float,
    named: int,
) -> Verdict:
    """The verdict on logits or probabilities `[A]`, as `name` says. Raises InvalidAudit that names the offending
    slot."""
    moves, slots = vocabulary.legal_slots(position)
    if not moves:
        raise _finished(position)
    if len(numbers) != len(vocabulary):
        raise InvalidAudit(
            f"{name}: {len(numbers)} numbers; the vocabulary {vocabulary.name} has {len(vocabulary)} slots"
        )
    values = np.array(numbers, dtype=np.float64)
    if name == "logits":
        total, nothing = None, -np.inf
        figures, share = _of_logits(values, moves, slots, position, vocabulary)
    else:
        total, nothing = _sum_of(name, dict(enumerate(values.tolist()))), 0.0
        figures, share = {GIVEN: _given_figure(values[slots], np.delete(values, slots))}, values / total
    illegal = np.ones(len(share), dtype=np.bool_)
    illegal[slots] = False
    reached = np.flatnonzero(illegal & (share > 0))
    reached = reached[np.lexsort((reached, -share[reached]))]
    heavy = HeavySlots(np.zeros(len(reached), dtype=np.intp), reached, share[reached])
    legal = legal_moves([position.board]).codes
    indptr = np.array([0, len(legal)])
    names = names_of_slots(position, vocabulary)
    by_name = dict(zip(names, share.tolist(), strict=True))
    heaviest, causes = explained(heavy, boards_of([position]), vocabulary, legal, indptr, named).of(0)
    best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
    return Verdict(
        figures=figures,
        total=total,
        top=names[best],
        top_is_legal=not illegal[best],
        missing=tuple(names[slot] for slot in slots[values[slots] == nothing].tolist()),
        causes=causes,
        illegal=tuple(move for move in heaviest if move.probability >= least),
        patterns=(
            *flat(share[illegal], share[slots]),
            *swapped(position.board, by_name, vocabulary.castling, vocabulary),
        ),
    )


def _of_logits(
    z: Float, moves: Sequence[chess.Move], slots: NDArray[np.intp], position: Position, vocabulary: Vocabulary
) -> tuple[dict[str, Figure], Float]:
    """The figures of logits `[A]`, and the share `[A]` that softmax gives each slot: none if a logit is NaN or +inf."""
    for slot in np.flatnonzero(np.isfinite(z) & (np.abs(z) > np.finfo(np.float32).max)):
        raise InvalidAudit(f"logits[{slot}]: {z[slot]} is beyond float32; write null for -infinity")
    for slot, move in zip(slots.tolist(), moves, strict=True):
        if np.isnan(z[slot]) or z[slot] == np.inf:
            raise InvalidAudit(f"logits[{slot}]: {move.uci()} is legal, and its logit is {z[slot]}")
    if np.isneginf(z[slots]).all():
        raise InvalidAudit("logits: every legal move has -infinity; there is no policy")
    kinds = [kind for kind in KINDS if kind != SERVED]
    batch = UnmaskedLogits(z[None], slots, np.array([0, len(slots)]))
    measured = measure(kinds, batch, vocabulary, np.array([position.black]))
    figures = {kind: columns.figure(0) for kind, columns in measured.items()}
    if figures[RAW].leaked is None:
        return figures, np.zeros(len(z))
    share = np.exp(z - z.max())
    return figures, share / share.sum()


def audited_policy(
    position: Position, policy: Mapping[str, float], *, castling: Castling | None = None, least: float, named: int
) -> Verdict:
    """The verdict on a map of UCI moves to probabilities. Raises InvalidAudit.

    Castling must be written in the form of `castling`; if that is None, either form (e1g1, e1h1) is accepted.
    """
    board = position.board
    if castling is Castling.KING_TWO_SQUARES and board.chess960:
        raise InvalidAudit("castling: in Chess960 it is written king_takes_rook")
    total = _sum_of("policy", policy)
    legal = legal_moves([board]).codes
    playable = {_key(board, move, None): move for move in moves_of(legal)}
    if not playable:
        raise _finished(position)
    names: dict[object, str] = {}
    wrong: list[tuple[str, chess.Move, float]] = []
    right = dict.fromkeys(playable, 0.0)
    for uci, p in policy.items():
        move = _move(uci)
        key = _key(board, move, castling)
        if p > 0 and key in names:
            raise InvalidAudit(
                f"policy: {names[key]!r} and {uci!r} may both stand for castling; say which with "
                f'"castling": "{Castling.KING_TWO_SQUARES.value}" or "{Castling.KING_TAKES_ROOK.value}"'
            )
        if p > 0:
            names[key] = uci
        if key in right:
            right[key] += p
        elif p > 0:
            wrong.append((uci, move, p / total))
    wrong.sort(key=lambda entry: (-entry[2], entry[0]))
    reasons = _causes([move for _, move, _ in wrong], position, castling, legal)
    illegal = [IllegalMass(uci, p, cause) for (uci, _, p), cause in zip(wrong, reasons, strict=True)]
    causes: dict[Cause, float] = defaultdict(float)
    for mass in illegal:
        causes[mass.cause] += mass.probability
    top = max(policy, key=lambda uci: policy[uci])
    legal_p, illegal_p = np.array(list(right.values())), np.array([p for _, _, p in wrong])
    share = {uci: p / total for uci, p in policy.items()}
    return Verdict(
        figures={GIVEN: _given_figure(legal_p / total, illegal_p)},
        total=total,
        top=top,
        top_is_legal=_key(board, _move(top), castling) in playable,
        missing=tuple(name_in_map(board, move, castling) for key, move in playable.items() if right[key] == 0),
        causes=causes,
        illegal=tuple(mass for mass in illegal if mass.probability >= least)[:named],
        patterns=(*flat(illegal_p, legal_p / total), *swapped(board, share, castling)),
    )


def _causes(
    moves: Sequence[chess.Move], position: Position, castling: Castling | None, legal: NDArray[np.intp]
) -> list[Cause]:
    """Why moves, given by their squares, are illegal; without `castling`, either form counts as castling."""
    boards, turned = boards_of([position]), 56 if position.black else 0
    source = np.array([move.from_square ^ turned for move in moves], dtype=np.intp)
    target = np.array([move.to_square ^ turned for move in moves], dtype=np.intp)
    promotion = np.array([move.promotion or 0 for move in moves], dtype=np.intp)
    if castling is None:
        takes_rook = boards.kinds[3] & boards.ours & BIT[target] != 0
    else:
        takes_rook = np.full(len(moves), castling is Castling.KING_TAKES_ROOK)
    written = Written(boards, np.zeros(len(moves), dtype=np.intp), source, target, promotion, takes_rook)
    return [CAUSES[cause] for cause in causes_of(written, [legal]).tolist()]


def _given_figure(right: Float, wrong: Float) -> Figure:
    """The illegal share, whether an illegal move is on top, and the divergence from the renormalised legal part."""
    on_right, on_wrong = float(right.sum()), float(wrong.sum())
    flipped = bool(wrong.max(initial=0.0) > right.max(initial=0.0))
    kl = float(np.log1p(on_wrong / on_right)) if on_right > 0 else None
    return Figure(on_wrong / (on_right + on_wrong), flipped, kl)


def _finished(position: Position) -> InvalidAudit:
    return InvalidAudit(f"fen: {position.fen!r} has no legal move; there is nothing to audit")


def _sum_of(name: str, numbers: Mapping[Any, float]) -> float:
    """The sum of probabilities. Raises InvalidAudit that names the probability, or the sum, that is impossible."""
    for key, p in numbers.items():
        if not 0 <= p <= 1 + _ROUNDING:
            raise InvalidAudit(f"{name}[{key}]: {p} is not a probability from 0 to 1")
    total = math.fsum(numbers.values())
    if total == 0:
        raise InvalidAudit(f"{name}: nothing is above 0")
    if not _LEAST_SUM <= total <= _LARGEST_SUM:
        raise InvalidAudit(
            f"{name}: the sum is {total:g}, too far from 1; divide by it (or apply a softmax if these are logits)"
        )
    return total


def _move(uci: str) -> chess.Move:
    try:
        move = chess.Move.from_uci(uci)
    except ValueError:
        raise InvalidAudit(f"policy: {uci!r} is not a UCI move") from None
    if not move or move.drop is not None:
        raise InvalidAudit(f"policy: {uci!r} is not a move of chess")
    return move


def _key(board: chess.Board, move: chess.Move, castling: Castling | None) -> object:
    """Equal for two ways to write the same move: castling in either form, or only in the form of `castling` if set."""
    can_castle = board.is_castling(move) and board.is_legal(move)
    if can_castle and (castling is None or board.chess960 or move == form_of(board, move, castling)):
        return "kingside" if board.is_kingside_castling(move) else "queenside"
    return move


#: Names of patterns beside those of kinds, as of the mistakes that `movemask models check --diagnose` finds.
UNIFORM, CASTLING, PROMOTION = "uniform", "castling_slot", "bare_promotion"

_FEWEST = 20  # with fewer illegal moves, equal probabilities prove nothing
_FLAT_SHARE = 0.9  # share of illegal moves with the same probability
_TOLERANCE = 1e-3  # relative; a softmax of different logits is rarely this flat
_NOTABLE = 1e-3  # probability on a wrong slot; plain softmax puts less there
_MOST = 0.5  # probability on moves with flipped ranks; the mistake moves nearly all of it

_FLIPPED = str.maketrans("12345678", "87654321")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A mistake that a distribution is typical of: its name, the probability it accounts for, and a sentence."""

    name: str
    share: float
    detail: str


def flat(illegal: Float, legal: Float) -> list[Pattern]:
    """The pattern of nearly all illegal moves having one and the same probability above 0; empty if they differ.

    `softmax(logits * mask)` does that: it makes illegal logits 0 instead of -infinity.
    """
    level = float(np.median(illegal)) if len(illegal) >= _FEWEST else 0.0
    same = np.abs(illegal - level) <= _TOLERANCE * level
    if level <= 0 or same.mean() < _FLAT_SHARE:
        return []
    share, count = float(illegal[same].sum()), int(same.sum())
    if (np.abs(legal - level) <= _TOLERANCE * level).all():
        detail = f"every move, legal or not, has {level:.3g}: the network said nothing, or its output was not read"
        return [Pattern(UNIFORM, share, detail)]
    detail = (
        f"{count} of {len(illegal)} illegal moves have the same probability, {level:.3g}: the signature of a "
        "multiplied mask, softmax(logits * mask), which makes their logits 0. Set them to -infinity before the softmax"
    )
    return [Pattern(MULTIPLIED, share, detail)]


def swapped(
    board: chess.Board, share: Mapping[str, float], castling: Castling | None, vocabulary: Vocabulary | None = None
) -> list[Pattern]:
    """The patterns of moves whose probability is on another move: castling and queen promotions on the other form, and
    all moves on those with the ranks flipped.

    share : by move in UCI, castling in the form of `castling`; where that is None, either form is right
    vocabulary : that of slots, named by their own squares; None for UCI, where every promotion has its letter
    """
    castlings: list[tuple[str, str]] = []
    if castling is not None and not board.chess960:
        for move in filter(board.is_castling, playable(board)):
            right = form_of(board, move, castling)
            castlings += [(right.uci(), form.uci()) for form in _forms(board, move) if form != right]
    bare = vocabulary and vocabulary.bare_promotion
    letter = chess.piece_symbol(bare) if bare else ""
    queens = [move.uci() for move in playable(board) if move.promotion == chess.QUEEN]
    promotions = [(uci, uci[:4] + letter) for uci in queens if letter != "q"]
    castling_rule = f"castling is written {castling and castling.value} here, and was read from the king's other square"
    return [
        *_swapped(CASTLING, castlings, share, castling_rule),
        *_swapped(PROMOTION, promotions, share, _promotion_rule(vocabulary)),
        *_unmirrored({name_in_map(board, move, castling) for move in playable(board)}, share),
    ]


def playable(board: chess.Board) -> tuple[chess.Move, ...]:
    """The legal moves."""
    return moves_of(legal_moves([board]).codes)


def names_of_slots(position: Position, vocabulary: Vocabulary) -> list[str]:
    """The moves of all slots `[A]`, named by their own squares."""
    rows = np.zeros(len(vocabulary), dtype=np.intp)
    written = Written.of_slots(boards_of([position]), rows, np.arange(len(vocabulary)), vocabulary)
    return uci_of(written.codes(vocabulary.bare_promotion))


def name_in_map(board: chess.Board, move: chess.Move, castling: Castling | None) -> str:
    """A legal move in UCI, castling in this form; as python-chess writes it if None."""
    if castling is None or board.chess960 or not board.is_castling(move):
        return move.uci()
    return form_of(board, move, castling).uci()


def form_of(board: chess.Board, move: chess.Move, castling: Castling) -> chess.Move:
    """A castling move of standard chess in this form."""
    two_squares, takes_rook = _forms(board, move)
    return takes_rook if castling is Castling.KING_TAKES_ROOK else two_squares


def _swapped(name: str, pairs: Sequence[tuple[str, str]], share: Mapping[str, float], rule: str) -> Iterator[Pattern]:
    """The pattern of pairs, the right form of a move and the wrong one, with more probability on the wrong one."""
    on = {uci: share.get(uci, 0.0) for pair in pairs for uci in pair}
    found = [(right, wrong) for right, wrong in pairs if on[wrong] >= _NOTABLE and on[wrong] > on[right]]
    if found:
        seen = ", ".join(f"{wrong} has {on[wrong]:.3g} and {right} {on[right]:.3g}" for right, wrong in found)
        yield Pattern(name, sum(on[wrong] for _, wrong in found), f"{seen}: {rule}")


def _unmirrored(legal: Set[str], share: Mapping[str, float]) -> Iterator[Pattern]:
    """The pattern of most of the probability on illegal moves that are legal with their ranks flipped."""
    on = sum(share.get(uci, 0.0) for uci in {uci.translate(_FLIPPED) for uci in legal} - legal)
    if on >= _MOST:
        rule = "if the network sees the board from the side to move, flip Black's moves back, and not White's"
        yield Pattern(UNMIRRORED, on, f"{on:.3g} is on moves that are legal with their ranks flipped: {rule}")


def _promotion_rule(vocabulary: Vocabulary | None) -> str:
    """Which form of a promotion is right."""
    if vocabulary is None:
        return "in UCI every promotion names its piece"
    if vocabulary.bare_promotion == chess.KNIGHT:
        return f"in {vocabulary.name} the slot without a letter is a knight's; was a queen read from it?"
    return f"in {vocabulary.name} every promotion has a slot with its letter"


def _forms(board: chess.Board, move: chess.Move) -> tuple[chess.Move, chess.Move]:
    """A castling move of standard chess in both forms: king two squares, and king takes rook."""
    rank, kingside = chess.square_rank(move.from_square), board.is_kingside_castling(move)
    return (
        chess.Move(move.from_square, chess.square(6 if kingside else 2, rank)),
        chess.Move(move.from_square, chess.square(7 if kingside else 0, rank)),
    )
