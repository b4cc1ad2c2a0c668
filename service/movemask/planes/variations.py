"""Variations: ways to read a network that differ from the usual in one thing, by name.

Two uses. A network that was trained otherwise is served by naming its variations in the contract. And each is a mistake
that a public project has shipped or could: `models check --diagnose` reads the network with and without each and
tells which fits (`movemask.inference.diagnosis`). What they change is either planes or slots, never both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import chess
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.position import Position
from movemask.errors import ContractError
from movemask.planes.encoders import PlaneEncoder
from movemask.vocabulary.forms import Castling, Flip
from movemask.vocabulary.vocabulary import Entry, Vocabulary

Planes = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Variation:
    """`words` end the sentence "the network was trained with …"."""

    name: str
    words: str
    encoders: tuple[str, ...] = ()  # whose planes it changes
    planes: Callable[[Planes, chess.Board, str], Planes] | None = None
    slots: Callable[[Vocabulary], Vocabulary | None] | None = None  # None where it changes nothing

    def applies(self, encoder: str, words: Vocabulary) -> bool:
        """Whether it would change anything for a network of this input and vocabulary."""
        if self.slots is not None:
            return self.slots(words) is not None
        return encoder in self.encoders


def variation_names() -> tuple[str, ...]:
    """Names of all variations."""
    return tuple(_VARIATIONS)


def variation(name: str) -> Variation:
    """The variation of that name; raises ContractError naming those there are."""
    if name not in _VARIATIONS:
        raise ContractError(f"no variation {name!r}; there are {', '.join(_VARIATIONS)}")
    return _VARIATIONS[name]


def varied_encoder(encoder: PlaneEncoder, names: Sequence[str]) -> PlaneEncoder:
    """The encoder with its planes changed."""
    changes = [found.planes for found in map(variation, names) if found.planes is not None]
    if not changes:
        return encoder

    def encode_all(positions: Sequence[Position], boards: Boards) -> Planes:
        planes = encoder.encode_all(positions, boards).copy()
        for row, position in enumerate(positions):
            for change in changes:
                planes[row] = change(planes[row], position.board, encoder.name)
        return planes

    return PlaneEncoder(encoder.name, encoder.shape, encoder.uses_history, encode_all, encoder.dtype)


def varied_vocabulary(words: Vocabulary, names: Sequence[str]) -> Vocabulary:
    """The vocabulary with its slots read otherwise."""
    for found in map(variation, names):
        if found.slots is not None:
            words = found.slots(words) or words
    return words


# Where each input has what a variation changes: (pieces, castling pairs, side to move, clock, ones, en passant).
_BOARDS = {"lc0-112": 104, "maia2-18": 12, "movemask-18": 15}  # leading planes that are seen from a side
_CASTLING = {"lc0-112": ((104, 105), (106, 107)), "maia2-18": ((13, 14), (15, 16))}
_SIDE = {"lc0-112": 108, "movemask-18": 16}
_CLOCK = {"lc0-112": 109, "movemask-18": 15}
_ONES = {"lc0-112": 111, "movemask-18": 17}
_EN_PASSANT = {"maia2-18": 17, "movemask-18": 14}
_CLOCK_SCALE = 100.0


def _swapped_castling(planes: Planes, _: chess.Board, encoder: str) -> Planes:
    for first, second in _CASTLING[encoder]:
        planes[[first, second]] = planes[[second, first]]
    return planes


def _blank(places: dict[str, int]) -> Callable[[Planes, chess.Board, str], Planes]:
    def change(planes: Planes, _: chess.Board, encoder: str) -> Planes:
        planes[places[encoder]] = 0
        return planes

    return change


def _scaled_clock(planes: Planes, _: chess.Board, encoder: str) -> Planes:
    """Raw where the usual is a share of 100, and the other way round."""
    scale = 1 / _CLOCK_SCALE if encoder == "lc0-112" else _CLOCK_SCALE
    planes[_CLOCK[encoder]] *= scale
    return planes


def _unflipped(planes: Planes, board: chess.Board, encoder: str) -> Planes:
    if board.turn == chess.BLACK:
        count = _BOARDS[encoder]
        planes[:count] = planes[:count, ::-1]
    return planes


def _rotated(planes: Planes, board: chess.Board, encoder: str) -> Planes:
    if board.turn == chess.BLACK:
        count = _BOARDS[encoder]
        planes[:count] = planes[:count, :, ::-1]
    return planes


def _unflipped_en_passant(planes: Planes, board: chess.Board, encoder: str) -> Planes:
    if board.turn == chess.BLACK:
        place = _EN_PASSANT[encoder]
        planes[place] = planes[place, ::-1]
    return planes


def _newest_only(planes: Planes, _: chess.Board, __: str) -> Planes:
    planes[13:104] = 0
    return planes


def _other_castling(words: Vocabulary) -> Vocabulary:
    kinds = (Castling.KING_TAKES_ROOK, Castling.KING_TWO_SQUARES)
    return _remade(words, castling=kinds[words.castling is kinds[0]])


def _other_bare(words: Vocabulary) -> Vocabulary | None:
    """A bare promotion is a queen where it was a knight, and the queen's slots the knight's; or the other way round."""
    if words.bare_promotion is None:
        return None
    mine, other = words.bare_promotion, chess.QUEEN + chess.KNIGHT - words.bare_promotion
    entries = tuple((e[0], e[1], mine) if e is not None and e[2] == other else e for e in words.entries)
    return _remade(words, entries=entries, bare=other)


def _reversed_promotions(words: Vocabulary) -> Vocabulary:
    """The pieces of each run of promotions in the opposite order: n b r q for q r b n."""
    entries = list(words.entries)
    start = 0
    while start < len(entries):
        end = start + 1
        first = entries[start]
        if first is not None and first[2] is not None:
            while end < len(entries) and _same_squares(first, entries[end]):
                end += 1
            run = [entry for entry in entries[start:end] if entry is not None]
            entries[start:end] = [
                (entry[0], entry[1], mirror[2]) for entry, mirror in zip(run, reversed(run), strict=True)
            ]
        start = end
    return _remade(words, entries=tuple(entries))


def _same_squares(first: Entry, entry: Entry) -> bool:
    return first is not None and entry is not None and entry[2] is not None and entry[:2] == first[:2]


def _flipped(flip: Flip) -> Callable[[Vocabulary], Vocabulary | None]:
    return lambda words: None if words.flip in (flip, Flip.NONE) else _remade(words, flip=flip)


def _remade(
    words: Vocabulary,
    *,
    entries: tuple[Entry, ...] | None = None,
    castling: Castling | None = None,
    bare: chess.PieceType | None = None,
    flip: Flip | None = None,
) -> Vocabulary:
    return Vocabulary(
        words.name,
        words.entries if entries is None else entries,
        castling=castling or words.castling,
        bare_promotion=bare or words.bare_promotion,
        flip=flip or words.flip,
    )


_VARIATIONS = {
    found.name: found
    for found in (
        Variation("castling_slot", "castling in the other form (e1g1 or e1h1)", slots=_other_castling),
        Variation("bare_promotion", "the other piece as the bare promotion (queen or knight)", slots=_other_bare),
        Variation("promotion_order", "its promotion pieces in the opposite order", slots=_reversed_promotions),
        Variation("slots_unmirrored", "Black's moves not mirrored", slots=_flipped(Flip.NONE)),
        Variation("slots_rotated", "Black's moves turned around instead of mirrored", slots=_flipped(Flip.ROTATED)),
        Variation("planes_unmirrored", "Black's board not mirrored", tuple(_BOARDS), _unflipped),
        Variation("planes_rotated", "Black's board turned around instead of mirrored", tuple(_BOARDS), _rotated),
        Variation(
            "castling_planes",
            "the castling planes of each side in the other order",
            tuple(_CASTLING),
            _swapped_castling,
        ),
        Variation("clock_scale", "the half-move clock on the other scale (raw or / 100)", tuple(_CLOCK), _scaled_clock),
        Variation("no_ones_plane", "no plane of ones", tuple(_ONES), _blank(_ONES)),
        Variation("no_side_plane", "no plane for the side to move", tuple(_SIDE), _blank(_SIDE)),
        Variation("no_history", "the newest position alone, older planes empty", ("lc0-112",), _newest_only),
        Variation(
            "en_passant_unflipped", "Black's en-passant square not flipped", tuple(_EN_PASSANT), _unflipped_en_passant
        ),
    )
}
