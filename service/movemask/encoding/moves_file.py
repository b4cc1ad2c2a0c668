"""`MovesFile`: a user's own vocabulary, one UCI move a line in the order of the network's outputs.

A blank line stands for a slot without a move. Every fault is named with its line.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import chess

from movemask.encoding.vocabulary import Castling, Flip, SlotMove, Vocabulary, promotes
from movemask.errors import ContractError

Perspective = Literal["side_to_move", "white"]

#: Most lines. No known vocabulary has more slots.
MOST_LINES = 8_192
#: Longest file in bytes.
MOST_BYTES = 131_072

_PIECES = {"q": chess.QUEEN, "r": chess.ROOK, "b": chess.BISHOP, "n": chess.KNIGHT}


@dataclass(frozen=True, slots=True)
class MovesFile:
    """The moves of a file. Two files are equal if their names and digests are.

    digest : SHA-256 in hexadecimal
    entries : the move of each line
    content : the file itself
    """

    name: str
    digest: str
    entries: tuple[SlotMove, ...] = field(compare=False, repr=False)
    content: bytes = field(compare=False, repr=False)

    @classmethod
    def read(cls, name: str, content: bytes) -> MovesFile:
        """Returns the moves of a file's content. Raises ContractError, which names the line."""
        if len(content) > MOST_BYTES:
            raise ContractError(
                f"{name}: larger than {MOST_BYTES} bytes, too large for a list of moves"
            )
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            place = content[: error.start].count(b"\n") + 1
            raise ContractError(f"{name}: line {place}: not UTF-8 text") from None
        lines = text.splitlines()
        if len(lines) > MOST_LINES:
            raise ContractError(f"{name}: {len(lines)} lines; at most {MOST_LINES} are allowed")
        first: dict[SlotMove, int] = {}
        entries: list[SlotMove] = []
        for number, line in enumerate(lines, 1):
            entry = _entry(f"{name}: line {number}", line.strip())
            if entry is not None and first.setdefault(entry, number) != number:
                raise ContractError(
                    f"{name}: line {number}: {line.strip()} is on line {first[entry]} already"
                )
            entries.append(entry)
        if not first:
            raise ContractError(f"{name}: no move in it; it needs one a line, such as e2e4")
        return cls(name, hashlib.sha256(content).hexdigest(), tuple(entries), content)

    def vocabulary(self, perspective: Perspective) -> Vocabulary:
        """Returns the vocabulary, an incomplete one. Castling is e1g1.

        If three of the four pieces have promotions with their letters, and the queen or the knight has none, it is the
        piece of a bare promotion. Raises ContractError for a move that this perspective does not have.
        """
        return _vocabulary(self, perspective)


@lru_cache(maxsize=16)
def _vocabulary(file: MovesFile, perspective: Perspective) -> Vocabulary:
    if perspective == "side_to_move":
        for number, entry in enumerate(file.entries, 1):
            if entry is not None and entry[2] is not None and chess.square_rank(entry[0]) == 1:
                raise ContractError(
                    f"{file.name}: line {number}: a promotion of Black, and contract.perspective is side_to_move, "
                    'which flips Black\'s moves: leave the line blank, or write perspective = "white"'
                )
    letters = {entry[2] for entry in file.entries if entry is not None and entry[2] is not None}
    others = set(_PIECES.values()) - letters
    bare = others.pop() if len(others) == 1 else None
    return Vocabulary(
        file.name,
        file.entries,
        castling=Castling.KING_TWO_SQUARES,
        bare_promotion=bare if bare in (chess.QUEEN, chess.KNIGHT) else None,
        flip=Flip.RANKS if perspective == "side_to_move" else Flip.NONE,
        complete=False,
    )


def entry_of(move: str) -> SlotMove:
    """Returns the squares and the promotion piece of a UCI move; None if blank. Raises ValueError."""
    if not move:
        return None
    try:
        source, target = chess.parse_square(move[:2]), chess.parse_square(move[2:4])
        piece = _PIECES[move[4:]] if move[4:] else None
    except (ValueError, KeyError):
        raise ValueError("not a move in UCI, such as e2e4 or a7a8q") from None
    if source == target:
        raise ValueError("a move to its own square: leave the line blank for an unused slot")
    if piece is not None and not promotes(source, target):
        raise ValueError("no pawn promotes between these squares")
    return source, target, piece


def _entry(where: str, move: str) -> SlotMove:
    try:
        return entry_of(move)
    except ValueError as error:
        raise ContractError(f"{where}: {move!r:.40}: {error}") from None
