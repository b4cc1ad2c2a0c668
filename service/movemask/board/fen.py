"""FEN → python-chess board, faster: a FEN in its plain form is parsed here, any other by python-chess.

The board equals `chess.Board(fen)`, and errors carry python-chess's messages.
"""

from __future__ import annotations

import re

import chess

#: Limits of every FEN that is read. The longest meaningful one has 71 characters of placement and 20 more.
MAX_LENGTH = 200
MAX_COUNTER = 1_000_000

#: Six fields in the usual form: no promoted-piece marks, standard castling letters, plain counters.
_PLAIN = re.compile(
    r"(?![^ ]*[1-8][1-8])([1-8PNBRQKpnbrqk/]{15,71}) ([wb]) (-|K?Q?k?q?) (-|[a-h][1-8])"
    r" (0|[1-9][0-9]{0,4}) ([1-9][0-9]{0,4})",
    re.ASCII,
)

_EMPTY = {ord(str(count)): "." * count for count in range(1, 9)}


def _bits_of(letters: str) -> dict[int, str]:
    """A table for `str.translate`: 1 for these pieces, 0 for all else."""
    return {ord(letter): "1" if letter in letters else "0" for letter in "PNBRQKpnbrqk."}


_PIECES = tuple(_bits_of(letters) for letters in ("Pp", "Nn", "Bb", "Rr", "Qq", "Kk", "PNBRQK"))


def board_of(fen: str, *, chess960: bool = False) -> chess.Board:
    """The board of a FEN; ValueError as python-chess raises it, or for a FEN beyond the limits."""
    check_length(fen)
    match = _PLAIN.fullmatch(fen)
    ranks = match[1].translate(_EMPTY).split("/") if match else []
    if match is None or [len(rank) for rank in ranks] != [8] * 8 or chess960 or not match[3]:
        board = chess.Board(fen, chess960=chess960)
        check_counters(board)
        return board
    # The text begins with a8, a binary number with h8.
    squares = "".join([rank[::-1] for rank in ranks])
    bits = [int(squares.translate(table), 2) for table in _PIECES]
    board = chess.Board(None)
    board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings, white = bits
    board.occupied = board.pawns | board.knights | board.bishops | board.rooks | board.queens | board.kings
    board.occupied_co[chess.WHITE], board.occupied_co[chess.BLACK] = white, board.occupied & ~white
    board.turn = match[2] == "w"
    if match[3] != "-":
        board.set_castling_fen(match[3])
    if match[4] != "-":
        board.ep_square = chess.SQUARE_NAMES.index(match[4])
    board.halfmove_clock, board.fullmove_number = int(match[5]), int(match[6])
    return board


def is_plain(fen: str, board: chess.Board) -> bool:
    """Whether the FEN that a valid board was read from is written just as python-chess would write it."""
    found = None if board.chess960 else _PLAIN.fullmatch(fen)
    # python-chess drops a queenside right without a word where that side has no rook on its first rank.
    return found is not None and len(found[3].strip("-")) == board.castling_rights.bit_count()


def check_length(fen: str) -> None:
    """ValueError for more than MAX_LENGTH characters."""
    if len(fen) > MAX_LENGTH:
        raise ValueError(f"{len(fen)} characters, at most {MAX_LENGTH} are taken: {fen[:40]!r}…")


def check_counters(board: chess.Board) -> None:
    """ValueError for a half-move clock or move number beyond MAX_COUNTER."""
    for name, number in (("half-move clock", board.halfmove_clock), ("move number", board.fullmove_number)):
        if number > MAX_COUNTER:
            raise ValueError(f"the {name} is {number}, at most {MAX_COUNTER} is taken")
