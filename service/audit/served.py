"""The check of every answer before it is sent: what it holds itself, from its own moves and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.move_codes import code_of
from service.encoding.position import Position
from service.errors import ServedLeakage
from service.numeric.ragged import Float, Index, indptr_of, row_of_each, row_sum

#: How far the probabilities of an answer may be from a sum of 1.
SUM_TOLERANCE = 1e-12

_CODES = 15  # bits of a move's code


@dataclass(frozen=True, slots=True)
class Told:
    """What the answers of a batch hold, row after row.

    codes, probabilities : `[N]`, moves (`move_codes`) and what each gets, rows in `indptr` `[B + 1]`
    abstention : `[B]`
    legal, legal_indptr : codes `[M]` of the moves that the policies were made over, before any filter
    """

    codes: Index
    probabilities: Float
    indptr: Index
    abstention: Float
    legal: Index
    legal_indptr: Index

    @classmethod
    def of(
        cls, codes: Sequence[Index], probabilities: Sequence[Float], abstention: Sequence[float], legal: Sequence[Index]
    ) -> Told:
        """From the arrays of each answer."""
        return cls(
            np.concatenate(codes),
            np.concatenate(probabilities),
            indptr_of([len(own) for own in codes]),
            np.array(abstention, dtype=np.float64),
            np.concatenate(legal),
            indptr_of([len(own) for own in legal]),
        )


def served(told: Told, positions: Sequence[Position], judged: Iterable[int] = ()) -> Float:
    """Leakage of finished answers `[B]`, from their own moves and numbers: the mass on moves that cannot be played.

    The rows in `judged` are held to python-chess anew, the others to the legal moves that are known. Raises
    ServedLeakage if a leakage is not exactly 0, a move stands twice, a sum, abstention counted, is not within 1e-12 of
    1, or python-chess knows of other legal moves.
    """
    rows = row_of_each(told.indptr)
    known = np.sort(row_of_each(told.legal_indptr) << _CODES | told.legal)
    keys = np.sort(rows << _CODES | told.codes)
    if not (_among(keys, known).all() and (keys[1:] != keys[:-1]).all()):
        _refuse(told, positions, rows, known)
    total = row_sum(told.probabilities, told.indptr) + told.abstention
    off = ~(np.abs(total - 1.0) <= SUM_TOLERANCE)
    if off.any():
        row = int(np.argmax(off))
        raise ServedLeakage(f"the answer for {positions[row].fen!r} sums to {float(total[row])!r}")
    for row in judged:
        span = slice(told.legal_indptr[row], told.legal_indptr[row + 1])
        _judge(positions[row].board, told.legal[span])
    return np.zeros(len(positions))


def _among(keys: NDArray[np.intp], known: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Where a key is one of those that are known, which rise."""
    if not len(known):
        return np.zeros(len(keys), dtype=np.bool_)
    return np.asarray(known[np.searchsorted(known, keys).clip(max=len(known) - 1)] == keys)


def _refuse(told: Told, positions: Sequence[Position], rows: Index, known: NDArray[np.intp]) -> None:
    """Raises for illegal mass or for a move that stands twice. A move that cannot be played and has no mass at all is
    no leakage."""
    keys = rows << _CODES | told.codes
    mass = row_sum(np.where(_among(keys, known), 0.0, told.probabilities), told.indptr)
    if (mass != 0.0).any():
        row = int(np.argmax(mass != 0.0))
        raise ServedLeakage(f"the answer for {positions[row].fen!r} holds {float(mass[row])!r} on illegal moves")
    found, counts = np.unique(keys, return_counts=True)
    if (counts > 1).any():
        row = int(found[np.argmax(counts > 1)]) >> _CODES
        raise ServedLeakage(f"the answer for {positions[row].fen!r} holds a move twice")


def _judge(board: chess.Board, codes: Index) -> None:
    """Raises unless these are the legal moves by python-chess."""
    right = {code_of(move) for move in board.generate_legal_moves()}
    if right != set(codes.tolist()):
        raise ServedLeakage(
            f"the answer for {board.fen()!r} is over {len(codes)} moves that are not the {len(right)} of python-chess"
        )
