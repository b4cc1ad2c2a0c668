"""The known vocabularies, generated from their documented orders. To add one: a function and a line in `_MAKERS`.

A user's own vocabulary is a file of moves (`moves_file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import chess

from movemask.encoding.vocabulary import Castling, Flip, SlotMove, Vocabulary
from movemask.errors import ContractError


@cache
def vocabulary(name: str) -> Vocabulary:
    """Returns the vocabulary of a name. Raises ContractError, which lists the known names."""
    if name not in _MAKERS:
        raise ContractError(f"no vocabulary {name!r}; available: {', '.join(vocabulary_names())}")
    return _MAKERS[name]()


def vocabulary_names() -> tuple[str, ...]:
    """Returns the names of all vocabularies."""
    return tuple(sorted(_MAKERS))


def _lc0_1858() -> Vocabulary:
    """lc0 `src/neural/encoder.cc`: 1792 from-to pairs, then promotions to q, r, b; a bare promotion is a knight."""
    entries = [*_queen_and_knight_moves(), *_promotions((chess.QUEEN, chess.ROOK, chess.BISHOP))]
    return Vocabulary(
        "lc0-1858", entries, castling=Castling.KING_TAKES_ROOK, bare_promotion=chess.KNIGHT
    )


def _movemask_1880() -> Vocabulary:
    """movemask's own: lc0's 1792 from-to pairs, then every promotion with its letter.

    Castling takes the rook, so that Chess960 fits.
    """
    entries = [*_queen_and_knight_moves(), *_promotions(_PIECES)]
    return Vocabulary("movemask-1880", entries, castling=Castling.KING_TAKES_ROOK)


def _maia2_1880() -> Vocabulary:
    """Maia-2 `utils.get_all_possible_moves`.

    Square by square, the queen's moves and then the knight's, each from the highest to-square down. Then each file's
    promotions: straight, to the left, to the right, each to q r b n.
    """
    entries: list[SlotMove] = []
    for source in chess.SQUARES:
        for reach in (_queen_reach(source), chess.BB_KNIGHT_ATTACKS[source]):
            entries += [(source, target, None) for target in chess.scan_reversed(reach)]
    entries += _straight_first(6, 7)
    return Vocabulary("maia2-1880", entries, castling=Castling.KING_TWO_SQUARES)


def _maia3_4352() -> Vocabulary:
    """Maia-3 `get_all_possible_moves`.

    Every from-square with every to-square, then the promotions by from-file, to-file and q r b n.
    """
    entries: list[SlotMove] = [
        (source, target, None) for source in chess.SQUARES for target in chess.SQUARES
    ]
    entries += [
        (chess.square(file, 6), chess.square(target_file, 7), piece)
        for file in range(8)
        for target_file in range(8)
        for piece in _PIECES
    ]
    return Vocabulary("maia3-4352", entries, castling=Castling.KING_TWO_SQUARES)


def _alphazero_4672() -> Vocabulary:
    """AlphaZero's 64 x 73 planes in pgx's order (`pgx/_src/games/chess_utils.py`): from-square times 73, plus plane.

    Squares go up the files, a1 a2 … h8. The planes are 9 under-promotions (rook, bishop, knight; each straight, to the
    right, to the left), 56 queen's moves (down, up, left, right, down-left, up-right, up-left, down-right) and 8
    knight's moves. A bare promotion is a queen.
    """
    steps = [(0, distance) for distance in (*range(-7, 0), *range(1, 8))]
    steps += [(distance, 0) for distance in (*range(-7, 0), *range(1, 8))]
    steps += [(distance, distance) for distance in (*range(-7, 0), *range(1, 8))]
    steps += [(distance, -distance) for distance in (*range(-7, 0), *range(1, 8))]
    steps += [(-2, -1), (-2, 1), (-1, -2), (-1, 2), (2, -1), (2, 1), (1, -2), (1, 2)]
    entries: list[SlotMove] = []
    for file in range(8):
        for rank in range(8):
            for piece in (chess.ROOK, chess.BISHOP, chess.KNIGHT):
                for sideways in (0, 1, -1):
                    entries.append(_shifted(file, rank, sideways, 1, piece) if rank == 6 else None)
            entries += [_shifted(file, rank, across, up, None) for across, up in steps]
    return Vocabulary(
        "alphazero-4672", entries, castling=Castling.KING_TWO_SQUARES, bare_promotion=chess.QUEEN
    )


def _uci_1968() -> Vocabulary:
    """searchless_chess `src/utils.py`: both colours' moves in UCI, not mirrored.

    Square by square, the queen's moves and then the knight's, each from a1 up. Then the promotions from the 2nd rank
    and from the 7th: for each file straight, to the left, to the right, each to q r b n.
    """
    entries: list[SlotMove] = []
    for source in chess.SQUARES:
        for reach in (_queen_reach(source), chess.BB_KNIGHT_ATTACKS[source]):
            entries += [(source, target, None) for target in chess.scan_forward(reach)]
    entries += [*_straight_first(1, 0), *_straight_first(6, 7)]
    return Vocabulary("uci-1968", entries, castling=Castling.KING_TWO_SQUARES, flip=Flip.NONE)


def _from_to_4096(*, by_file: bool, flip: Flip) -> Vocabulary:
    """64 x 64: from-square times 64, plus to-square. A bare promotion is a queen; others have no slot.

    by_file : squares are numbered a1 a2 … h8 instead of a1 b1 … h8
    """
    squares = (
        sorted(chess.SQUARES, key=lambda square: (square & 7, square)) if by_file else chess.SQUARES
    )
    entries: list[SlotMove] = [(source, target, None) for source in squares for target in squares]
    name = f"from-to-4096{'-by-file' if by_file else ''}{'' if flip is Flip.RANKS else '-white'}"
    return Vocabulary(
        name,
        entries,
        castling=Castling.KING_TWO_SQUARES,
        bare_promotion=chess.QUEEN,
        flip=flip,
        complete=False,
    )


#: The vocabularies without slots for under-promotions, which a contract may add.
FROM_TO = tuple(
    f"from-to-4096{squares}{view}" for squares in ("", "-by-file") for view in ("", "-white")
)


def with_promotions(vocabulary: Vocabulary, promotions: Sequence[SlotMove]) -> Vocabulary:
    """Returns the vocabulary with slots for these promotions after its own.

    With queens among them, no promotion is bare.
    """
    queens = any(entry is not None and entry[2] == chess.QUEEN for entry in promotions)
    return vocabulary.changed(
        entries=(*vocabulary.entries, *promotions),
        bare_promotion=None if queens else vocabulary.bare_promotion,
    )


def playable(vocabulary: Vocabulary) -> tuple[tuple[chess.Square, chess.Square, int | None], ...]:
    """Returns every move that some position allows, as the vocabulary sees it: 1880, or 1968 if it does not mirror."""
    entries = (_movemask_1880() if vocabulary.mirrored else _uci_1968()).entries
    return tuple(entry for entry in entries if entry is not None)


_PIECES = (chess.QUEEN, chess.ROOK, chess.BISHOP, chess.KNIGHT)

_MAKERS: dict[str, Callable[[], Vocabulary]] = {
    **{
        name: partial(
            _from_to_4096,
            by_file="by-file" in name,
            flip=Flip.NONE if name.endswith("white") else Flip.RANKS,
        )
        for name in FROM_TO
    },
    "alphazero-4672": _alphazero_4672,
    "lc0-1858": _lc0_1858,
    "maia2-1880": _maia2_1880,
    "maia3-4352": _maia3_4352,
    "movemask-1880": _movemask_1880,
    "uci-1968": _uci_1968,
}


def _shifted(file: int, rank: int, across: int, up: int, piece: chess.PieceType | None) -> SlotMove:
    """Returns the move by `across` files and `up` ranks; None if it leaves the board."""
    if not (0 <= file + across < 8 and 0 <= rank + up < 8):
        return None
    return chess.square(file, rank), chess.square(file + across, rank + up), piece


def _queen_reach(source: chess.Square) -> chess.Bitboard:
    """Squares that a queen alone on the board attacks from `source`."""
    return (
        chess.BB_RANK_ATTACKS[source][0]
        | chess.BB_FILE_ATTACKS[source][0]
        | chess.BB_DIAG_ATTACKS[source][0]
    )


def _queen_and_knight_moves() -> Iterator[SlotMove]:
    """Yields the 1792 from-to pairs of a queen or a knight, from a1 up, each to-square from a1 up."""
    for source in chess.SQUARES:
        for target in chess.scan_forward(_queen_reach(source) | chess.BB_KNIGHT_ATTACKS[source]):
            yield source, target, None


def _promotions(pieces: tuple[chess.PieceType, ...]) -> Iterator[SlotMove]:
    """Yields the promotions from each file of the 7th rank, target files from left to right, each to `pieces` in
    order.
    """
    for file in range(8):
        for target_file in range(max(0, file - 1), min(7, file + 1) + 1):
            for piece in pieces:
                yield chess.square(file, 6), chess.square(target_file, 7), piece


def _straight_first(rank: int, last: int) -> Iterator[SlotMove]:
    """Yields the promotions from each file of a rank: straight, to the left, to the right, each to q r b n."""
    for file in range(8):
        for target_file in (file, file - 1, file + 1):
            if 0 <= target_file < 8:
                for piece in _PIECES:
                    yield chess.square(file, rank), chess.square(target_file, last), piece
