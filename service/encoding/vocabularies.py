"""The vocabularies we know, each generated from its documented order. A new one is a function and a line in
`_MAKERS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import chess

from service.encoding.vocabulary import Castling, Entry, Vocabulary
from service.errors import ContractError


def vocabulary(name: str) -> Vocabulary:
    """The vocabulary of that name; raises ContractError naming those there are."""
    if name not in _MAKERS:
        raise ContractError(f"no vocabulary {name!r}; there are {', '.join(sorted(_MAKERS))}")
    return _made(name)


def vocabulary_names() -> tuple[str, ...]:
    """Names of all vocabularies."""
    return tuple(sorted(_MAKERS))


@cache
def _made(name: str) -> Vocabulary:
    return _MAKERS[name]()


def _lc0_1858() -> Vocabulary:
    """lc0 `src/neural/encoder.cc`: 1792 from-to pairs, then promotions to q, r, b; a bare promotion is a knight."""
    entries = [*_queen_and_knight_moves(), *_promotions((chess.QUEEN, chess.ROOK, chess.BISHOP))]
    return Vocabulary("lc0-1858", entries, castling=Castling.KING_TAKES_ROOK, bare_promotion=chess.KNIGHT)


def _movemask_1880() -> Vocabulary:
    """Ours: lc0's 1792 from-to pairs, then every promotion written out; castling takes the rook, so Chess960 fits."""
    pieces = (chess.QUEEN, chess.ROOK, chess.BISHOP, chess.KNIGHT)
    entries = [*_queen_and_knight_moves(), *_promotions(pieces)]
    return Vocabulary("movemask-1880", entries, castling=Castling.KING_TAKES_ROOK)


def _maia2_1880() -> Vocabulary:
    """Maia-2 `utils.get_all_possible_moves`.

    Square by square the queen's moves and then the knight's, each from the highest to-square down; then, for each file,
    the straight promotions, those to the left and those to the right, q r b n each.
    """
    entries: list[Entry] = []
    for source in chess.SQUARES:
        for reach in (_queen_reach(source), chess.BB_KNIGHT_ATTACKS[source]):
            entries += [(source, target, None) for target in chess.scan_reversed(reach)]
    for file in range(8):
        for target_file in (file, file - 1, file + 1):
            if 0 <= target_file < 8:
                for piece in (chess.QUEEN, chess.ROOK, chess.BISHOP, chess.KNIGHT):
                    entries.append((chess.square(file, 6), chess.square(target_file, 7), piece))
    return Vocabulary("maia2-1880", entries, castling=Castling.KING_TWO_SQUARES)


_MAKERS: dict[str, Callable[[], Vocabulary]] = {
    "lc0-1858": _lc0_1858,
    "maia2-1880": _maia2_1880,
    "movemask-1880": _movemask_1880,
}


def _queen_reach(source: chess.Square) -> chess.Bitboard:
    """Squares that a queen alone on the board attacks from `source`."""
    return chess.BB_RANK_ATTACKS[source][0] | chess.BB_FILE_ATTACKS[source][0] | chess.BB_DIAG_ATTACKS[source][0]


def _queen_and_knight_moves() -> Iterator[Entry]:
    """The 1792 from-to pairs of a queen or a knight, from a1 up, each to-square from a1 up."""
    for source in chess.SQUARES:
        for target in chess.scan_forward(_queen_reach(source) | chess.BB_KNIGHT_ATTACKS[source]):
            yield source, target, None


def _promotions(pieces: tuple[chess.PieceType, ...]) -> Iterator[Entry]:
    """From each file of the 7th rank, target files left to right, each with `pieces` in order."""
    for file in range(8):
        for target_file in range(max(0, file - 1), min(7, file + 1) + 1):
            for piece in pieces:
                yield chess.square(file, 6), chess.square(target_file, 7), piece
