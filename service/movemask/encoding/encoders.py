"""Plane encoders by name, and the encoders of Maia-2, Maia-3, pgx's AlphaZero and searchless_chess.

An encoder turns a position into a network's input: planes, or tokens for networks that read squares or characters. Here
and in contracts both are called planes. To add an encoder, write a function, here or in a module of its own, and a line
in `_ENCODERS`. Other packages add encoders by an entry point (`installed_encoders`).

`maia2-18`: planes 0-5 White P N B R Q K, 6-11 Black, 12 ones if White is to move, 13-16 castling K Q k q, 17 the
en-passant square. `maia3-tokens-12`, `maia3-tokens-96`: for each square, a1 first, twelve numbers for P N B R Q K
p n b r q k, and nothing else. With Black to move the board is mirrored first (`Board.mirror`), so the side to move is
always White. Sources: `maia2.utils.board_to_tensor` of the PyPI package, `maia3.dataset.tokenize_board` and
`get_historical_tokens`.

`pgx-119`: AlphaZero's input as pgx's chess observes it, channels last (`pgx/_src/games/chess.py`, `observe`). Eight
blocks of 14 planes, newest first: ours P N B R Q K, theirs P N B R Q K, ones if the position occurred once, ones if it
occurred again. The block of an unknown position has no pieces, and ones in the first of the last two planes. Then:

| plane | what |
|---|---|
| 112 | ones if Black is to move |
| 113 | plies since the start of the game / 512 |
| 114, 115 | we may castle O-O-O, O-O |
| 116, 117 | they may castle O-O-O, O-O |
| 118 | half-move clock / 100 |

All planes are seen by the side that is now to move: with Black to move the ranks are flipped and the colours swapped.
Row 0 is the 8th rank, as on a diagram.

`fen-77`: the characters of a FEN as numbers, as searchless_chess reads them (`src/tokenizer.py`). Their order: the side
to move; the 64 squares from a8 to h1 (`.` if empty); four places for castling rights; two for the en-passant square
(only if the capture is legal, as python-chess writes a FEN); three each for the half-move clock and the move number.
`.` pads each field. The board is not mirrored for Black.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards, unpacked
from movemask.board.position import Position, SamePosition
from movemask.encoding import lc0, movemask_planes
from movemask.encoding.installed_encoders import encoded, installed_encoder, installed_names
from movemask.encoding.lc0 import HistoryFill, castling, pieces, seen_now
from movemask.errors import ContractError


@dataclass(frozen=True, slots=True)
class PlaneEncoder:
    """Encodes positions as an array `[B, *shape]` of this dtype."""

    name: str
    shape: tuple[int, ...]
    uses_history: bool
    encode_all: Callable[[Sequence[Position], Boards], NDArray[Any]]
    dtype: str = "float32"

    def encode(self, position: Position) -> NDArray[Any]:
        """Returns the input of a single position."""
        planes: NDArray[Any] = self.encode_all([position], Boards.of([position.board]))[0]
        return planes


def plane_encoder(name: str, history_fill: HistoryFill = HistoryFill.FEN_ONLY) -> PlaneEncoder:
    """Returns the encoder of a name. Raises ContractError, which lists the known names."""
    if name == "lc0-112":
        return PlaneEncoder(
            name, (lc0.PLANES, 8, 8), True, partial(lc0.encode_all, fill=history_fill)
        )
    if name in _ENCODERS:
        return _ENCODERS[name]
    installed = installed_encoder(name)
    if installed is None:
        raise ContractError(
            f"no plane encoder {name!r}; available: "
            f"{', '.join((*plane_encoder_names(), *installed_names()))}"
        )
    return PlaneEncoder(
        name,
        tuple(installed.shape),
        installed.uses_history,
        lambda positions, _: encoded(name, installed, positions),
        str(np.dtype(installed.dtype)),
    )


def plane_encoder_names() -> tuple[str, ...]:
    """Returns the names of movemask's own plane encoders."""
    return tuple(sorted((*_ENCODERS, "lc0-112")))


MAIA2_PLANES = 18
SQUARES, PIECES, BLOCKS = 64, 12, 8


def encode_maia2(_: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """Returns the input of Maia-2: float32 `[B, 18, 8, 8]`."""
    planes = np.zeros((len(boards), MAIA2_PLANES, 8, 8), dtype=np.float32)
    planes[:, :12] = unpacked(pieces(boards)[:, :PIECES])
    planes[:, 12] = 1.0  # after mirroring, White is always to move
    planes[:, 13:17] = castling(boards)[:, [1, 0, 3, 2], None, None]
    planes[:, 17:] = unpacked(boards.en_passant[:, None])
    return planes


def encode_maia3(_: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """Returns the input of Maia-3 without history: float32 `[B, 64, 12]`."""
    by_piece = unpacked(pieces(boards)[:, :PIECES]).reshape(-1, PIECES, SQUARES)
    return np.ascontiguousarray(by_piece.transpose(0, 2, 1), dtype=np.float32)


def encode_maia3_history(position: Position) -> NDArray[np.float32]:
    """Returns the input of Maia-3 with history, for one position: float32 `[64, 96]`.

    Eight positions, oldest first, each seen by its own side to move. A short history is padded with its oldest
    position.
    """
    known = [entry.board for entry in reversed(position.history(BLOCKS))]
    boards = [known[0]] * (BLOCKS - len(known)) + known
    return np.concatenate(encode_maia3([], Boards.of(boards)), axis=1)


PGX_PLANES = 119
_BLOCK = 14
_ONCE, _AGAIN = 12, 13
_BLACK, _PLIES, _PGX_CASTLING, _CLOCK = 112, 113, 114, 118
_LONGEST_GAME, _LONGEST_CLOCK = 512, 100


def encode_pgx(position: Position) -> NDArray[np.float32]:
    """Returns pgx's input for one position with the game that led to it: float32 `[8, 8, 119]`.

    As in pgx, a position counts as repeated also if the other occurrence is later. Positions with
    different en-passant squares differ, even if no capture is possible.
    """
    known = position.history(BLOCKS, SamePosition.BY_SQUARE)
    earlier = {entry.earlier for entry in known}
    boards = Boards.of([entry.board for entry in known])
    planes = np.zeros((PGX_PLANES, 8, 8), dtype=np.float32)
    planes[_ONCE : BLOCKS * _BLOCK : _BLOCK] = 1.0
    for block, (entry, bits) in enumerate(
        zip(known, seen_now(pieces(boards), len(known)), strict=True)
    ):
        first, again = block * _BLOCK, entry.earlier is not None or entry.ply in earlier
        planes[first : first + PIECES] = unpacked(bits[:PIECES])
        planes[first + _ONCE], planes[first + _AGAIN] = not again, again
    planes[_BLACK] = boards.black[0]
    planes[_PLIES] = position.board.ply() / _LONGEST_GAME
    planes[_PGX_CASTLING : _PGX_CASTLING + 4] = castling(boards)[0, :, None, None]
    planes[_CLOCK] = position.board.halfmove_clock / _LONGEST_CLOCK
    return np.ascontiguousarray(planes[:, ::-1].transpose(1, 2, 0))


FEN_LENGTH = 77
_CHARACTERS = "0123456789abcdefghpnrkqPBNRQKw."
_MAX_COUNTER = 999  # three digits: a FEN may hold any number


def encode_fen(position: Position) -> NDArray[np.int32]:
    """Returns the input of searchless_chess for one position: int32 `[77]`."""
    board = position.board
    pieces, side, castling, en_passant, _, _ = board.fen().split()
    squares = "".join("." * int(c) if c.isdigit() else c for c in pieces if c != "/")
    counters = (
        f"{min(number, _MAX_COUNTER):.<3}"
        for number in (board.halfmove_clock, board.fullmove_number)
    )
    text = (
        side
        + squares
        + castling.replace("-", "").ljust(4, ".")
        + en_passant.replace("-", "..")
        + "".join(counters)
    )
    return np.array([_CHARACTERS.index(c) for c in text], dtype=np.int32)


def _one_by_one(
    encode: Callable[[Position], NDArray[Any]],
) -> Callable[[Sequence[Position], Boards], NDArray[Any]]:
    """Returns an encoder of batches that encodes each position separately, for inputs that are rarely used."""
    return lambda positions, _: np.stack([encode(position) for position in positions])


_ENCODERS: dict[str, PlaneEncoder] = {
    encoder.name: encoder
    for encoder in (
        PlaneEncoder("fen-77", (FEN_LENGTH,), False, _one_by_one(encode_fen), "int32"),
        PlaneEncoder("maia2-18", (MAIA2_PLANES, 8, 8), False, encode_maia2),
        PlaneEncoder("maia3-tokens-12", (64, PIECES), False, encode_maia3),
        PlaneEncoder("maia3-tokens-96", (64, 96), True, _one_by_one(encode_maia3_history)),
        PlaneEncoder(
            "movemask-tokens-99", (64, movemask_planes.TOKENS), True, movemask_planes.encode_tokens
        ),
        PlaneEncoder("pgx-119", (8, 8, PGX_PLANES), True, _one_by_one(encode_pgx)),
    )
}
