"""Variations by name. Each changes one thing in how a network is read: its planes or its slots.

Variations have two uses. A contract names a variation if its network was trained with it. And each variation is a
mistake that a public project has made or could make: `movemask models check --diagnose` reads the network with and
without it, and says which reading fits (`movemask.network_tools.diagnosis`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.position import Position
from movemask.encoding.encoders import PlaneEncoder
from movemask.encoding.vocabulary import Castling, Flip, SlotMove, Vocabulary
from movemask.errors import ContractError

Planes = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Variation:
    """A way to read a network.

    words : the end of the sentence "the network was trained with …"
    encoders : the encoders whose planes it changes
    planes : the change of a position's planes
    slots : the changed vocabulary, or None if this vocabulary stays the same
    """

    name: str
    words: str
    encoders: tuple[str, ...] = ()
    planes: Callable[[Planes, chess.Board, str], Planes] | None = None
    slots: Callable[[Vocabulary], Vocabulary | None] | None = None

    def applies(self, encoder: str, vocabulary: Vocabulary) -> bool:
        """Returns whether it changes anything for a network with this encoder and vocabulary."""
        if self.slots is not None:
            return self.slots(vocabulary) is not None
        return encoder in self.encoders


def variation_names() -> tuple[str, ...]:
    """Returns the names of all variations."""
    return tuple(_VARIATIONS)


def variation(name: str) -> Variation:
    """Returns the variation of a name. Raises ContractError, which lists the known names."""
    if name not in _VARIATIONS:
        raise ContractError(f"no variation {name!r}; available: {', '.join(_VARIATIONS)}")
    return _VARIATIONS[name]


def varied_encoder(encoder: PlaneEncoder, names: Sequence[str]) -> PlaneEncoder:
    """Returns the encoder with these variations of its planes."""
    changes = [varied.planes for varied in map(variation, names) if varied.planes is not None]
    if not changes:
        return encoder

    def encode_all(positions: Sequence[Position], boards: Boards) -> Planes:
        planes = encoder.encode_all(positions, boards).copy()
        for row, position in enumerate(positions):
            for change in changes:
                planes[row] = change(planes[row], position.board, encoder.name)
        return planes

    return PlaneEncoder(
        encoder.name, encoder.shape, encoder.uses_history, encode_all, encoder.dtype
    )


def varied_vocabulary(vocabulary: Vocabulary, names: Sequence[str]) -> Vocabulary:
    """Returns the vocabulary with these variations of its slots."""
    for varied in map(variation, names):
        if varied.slots is not None:
            vocabulary = varied.slots(vocabulary) or vocabulary
    return vocabulary


# The planes that variations change, by encoder.
_BOARDS = {"lc0-112": slice(104), "maia2-18": slice(12)}  # planes seen from a side
_CASTLING = {"lc0-112": ((104, 105), (106, 107)), "maia2-18": ((13, 14), (15, 16))}
_SIDE = {"lc0-112": 108}
_CLOCK = {"lc0-112": 109}
_ONES = {"lc0-112": 111}
_EN_PASSANT = {"maia2-18": slice(17, 18)}
_HISTORY = {"lc0-112": slice(13, 104)}


def _swapped_castling(planes: Planes, _: chess.Board, encoder: str) -> Planes:
    for first, second in _CASTLING[encoder]:
        planes[[first, second]] = planes[[second, first]]
    return planes


def _blank(plane_of: Mapping[str, int | slice]) -> Callable[[Planes, chess.Board, str], Planes]:
    def change(planes: Planes, _: chess.Board, encoder: str) -> Planes:
        planes[plane_of[encoder]] = 0
        return planes

    return change


def _scaled_clock(planes: Planes, _: chess.Board, encoder: str) -> Planes:
    planes[_CLOCK[encoder]] /= 100
    return planes


def _blacks(
    planes_of: Mapping[str, slice], axis: int
) -> Callable[[Planes, chess.Board, str], Planes]:
    """Returns a change that reverses these planes with Black to move: along the ranks (axis 1) or the files
    (axis 2).
    """

    def change(planes: Planes, board: chess.Board, encoder: str) -> Planes:
        if board.turn == chess.BLACK:
            planes[planes_of[encoder]] = np.flip(planes[planes_of[encoder]], axis)
        return planes

    return change


def _other_castling(vocabulary: Vocabulary) -> Vocabulary:
    forms = (Castling.KING_TAKES_ROOK, Castling.KING_TWO_SQUARES)
    return vocabulary.changed(castling=forms[vocabulary.castling is forms[0]])


def _other_bare(vocabulary: Vocabulary) -> Vocabulary | None:
    """Swaps queen and knight: the other piece becomes the bare promotion, and its slots go to the former bare piece."""
    if vocabulary.bare_promotion is None:
        return None
    bare = vocabulary.bare_promotion
    other = chess.QUEEN + chess.KNIGHT - bare
    if other not in vocabulary.columns[2]:
        return None
    entries = tuple(
        (e[0], e[1], bare) if e is not None and e[2] == other else e for e in vocabulary.entries
    )
    return vocabulary.changed(entries=entries, bare_promotion=other)


def _reversed_promotions(vocabulary: Vocabulary) -> Vocabulary | None:
    """Reverses the promotion pieces of each pair of squares: n b r q instead of q r b n."""
    entries: list[SlotMove] = []
    for squares, group in groupby(vocabulary.entries, _promotion_squares):
        run = list(group)
        entries += run if squares is None else reversed(run)
    return None if entries == [*vocabulary.entries] else vocabulary.changed(entries=tuple(entries))


def _promotion_squares(entry: SlotMove) -> tuple[chess.Square, chess.Square] | None:
    """Returns the squares of a promotion that names its piece; None for other entries."""
    return None if entry is None or entry[2] is None else entry[:2]


def _flipped(flip: Flip) -> Callable[[Vocabulary], Vocabulary | None]:
    return lambda vocabulary: (
        None if vocabulary.flip in (flip, Flip.NONE) else vocabulary.changed(flip=flip)
    )


_VARIATIONS = {
    entry.name: entry
    for entry in (
        Variation(
            "castling_slot", "castling in the other form (e1g1 or e1h1)", slots=_other_castling
        ),
        Variation(
            "bare_promotion",
            "the other piece as the bare promotion (queen or knight)",
            slots=_other_bare,
        ),
        Variation(
            "promotion_order",
            "its promotion pieces in the opposite order",
            slots=_reversed_promotions,
        ),
        Variation("slots_unmirrored", "Black's moves not mirrored", slots=_flipped(Flip.NONE)),
        Variation(
            "slots_rotated",
            "Black's moves turned around instead of mirrored",
            slots=_flipped(Flip.ROTATED),
        ),
        Variation(
            "planes_unmirrored", "Black's board not mirrored", tuple(_BOARDS), _blacks(_BOARDS, 1)
        ),
        Variation(
            "planes_rotated",
            "Black's board turned around instead of mirrored",
            tuple(_BOARDS),
            _blacks(_BOARDS, 2),
        ),
        Variation(
            "castling_planes",
            "the castling planes of each side in the other order",
            tuple(_CASTLING),
            _swapped_castling,
        ),
        Variation(
            "clock_scale", "the half-move clock / 100 instead of raw", tuple(_CLOCK), _scaled_clock
        ),
        Variation("no_ones_plane", "no plane of ones", tuple(_ONES), _blank(_ONES)),
        Variation("no_side_plane", "no plane for the side to move", tuple(_SIDE), _blank(_SIDE)),
        Variation(
            "no_history",
            "the newest position alone, older planes empty",
            tuple(_HISTORY),
            _blank(_HISTORY),
        ),
        Variation(
            "en_passant_unflipped",
            "Black's en-passant square not flipped",
            tuple(_EN_PASSANT),
            _blacks(_EN_PASSANT, 1),
        ),
    )
}
