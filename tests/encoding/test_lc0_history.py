"""lc0's planes with and without history, against a second encoder.

The judge is a second encoder, written from lc0's rules (`src/neural/encoder.cc`, `PositionHistory` in
`src/chess/position.cc`, `ChessBoard::operator==`) square by square; python-chess only plays the moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import chess
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.board.position import Position, boards_of
from movemask.encoding.lc0 import HistoryFill, encode_all
from tests.ground_truth import perft, tricky

Planes = NDArray[np.float32]

PLACEMENT = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR"
KNIGHTS_OUT_AND_BACK = ["g1f3", "g8f6", "f3g1", "f6g8"]
OTHER_RANKS = str.maketrans("12345678", "87654321")
KEPT = [chess.BB_ALL, chess.BB_RANK_1, chess.BB_FILE_A | chess.BB_H8, chess.BB_EMPTY]
RIGHTS = ["".join(letters) or "-" for letters in product(*((letter, "") for letter in "KQkq"))]


@dataclass(frozen=True)
class Lc0Board:
    """What lc0 tells boards apart by: pieces, side to move, castling rights, and the file of its en-passant flag."""

    pieces: tuple[tuple[int, str], ...]
    turn: bool
    castling: frozenset[tuple[bool, str]]
    en_passant: int | None


@dataclass(frozen=True)
class Lc0Position:
    board: Lc0Board
    clock: int
    repetitions: int


def lc0_board(board: chess.Board, en_passant: int | None) -> Lc0Board:
    castling = set()
    for color in chess.COLORS:
        if board.has_kingside_castling_rights(color):
            castling.add((color, "00"))
        if board.has_queenside_castling_rights(color):
            castling.add((color, "000"))
    pieces = tuple(sorted((square, piece.symbol()) for square, piece in board.piece_map().items()))
    return Lc0Board(pieces, board.turn, frozenset(castling), en_passant)


def flag_after(board: chess.Board, move: chess.Move) -> int | None:
    """lc0 flags a double push only where an enemy pawn stands beside the pawn, pinned or not."""
    if board.piece_type_at(move.from_square) != chess.PAWN or abs(move.to_square - move.from_square) != 16:
        return None
    file, rank = chess.square_file(move.to_square), chess.square_rank(move.to_square)
    for beside in (file - 1, file + 1):
        if 0 <= beside < 8 and board.piece_at(chess.square(beside, rank)) == chess.Piece(chess.PAWN, not board.turn):
            return file
    return None


def lc0_game(fen: str, moves: list[str], chess960: bool) -> list[Lc0Position]:
    board = chess.Board(fen, chess960=chess960)
    flag = None if board.ep_square is None else chess.square_file(board.ep_square)  # a FEN's own is taken as it is
    positions = [Lc0Position(lc0_board(board, flag), board.halfmove_clock, 0)]
    for uci in moves:
        move = board.parse_uci(uci)
        flag = flag_after(board, move)
        zeroing = board.is_capture(move) or board.piece_type_at(move.from_square) == chess.PAWN
        board.push(move)
        clock = 0 if zeroing else positions[-1].clock + 1
        now = lc0_board(board, flag)
        positions.append(Lc0Position(now, clock, repetitions_of(now, clock, positions)))
    return positions


def repetitions_of(board: Lc0Board, clock: int, before: list[Lc0Position]) -> int:
    if clock < 4:
        return 0
    for index in range(len(before) - 2, -1, -2):
        if before[index].board == board:
            return 1 + before[index].repetitions
        if before[index].clock < 2:
            return 0
    return 0


def expected(fen: str, moves: list[str], *, fill: HistoryFill, chess960: bool = False) -> Planes:
    game = lc0_game(fen, moves, chess960)
    start = lc0_board(chess.Board(), None)
    us = game[-1].board.turn
    planes = np.zeros((112, 8, 8), dtype=np.float32)
    for index in range(8):
        place = len(game) - 1 - index
        position = game[max(place, 0)]
        if place < 0 and fill is HistoryFill.NO:
            break
        if place < 0 and fill is HistoryFill.FEN_ONLY and position.board == start:
            break
        pieces = dict(position.board.pieces)
        if place < 0 and position.board.en_passant is not None:  # the pawn goes back to where it came from
            file, black_moved = position.board.en_passant, position.board.turn == chess.WHITE
            pawn = pieces.pop(chess.square(file, 4 if black_moved else 3))
            pieces[chess.square(file, 6 if black_moved else 1)] = pawn
        for square, symbol in pieces.items():
            plane = "PNBRQK".index(symbol.upper()) + (0 if symbol.isupper() == us else 6)
            rank = chess.square_rank(square) if us else 7 - chess.square_rank(square)
            planes[13 * index + plane, rank, chess.square_file(square)] = 1
        planes[13 * index + 12] = position.repetitions >= 1
    now = game[-1]
    for plane, right in enumerate([(us, "000"), (us, "00"), (not us, "000"), (not us, "00")], start=104):
        planes[plane] = right in now.board.castling
    planes[108] = us == chess.BLACK
    planes[109] = now.clock
    planes[111] = 1
    return planes


def check(fen: str, moves: list[str], *, chess960: bool = False) -> None:
    position = Position.read(fen, moves, chess960=chess960)
    boards = boards_of([position, position])
    for fill in HistoryFill:
        stack = encode_all([position, position], boards, fill)
        right = expected(fen, moves, fill=fill, chess960=chess960)
        for planes in stack:
            wrong = np.flatnonzero((planes != right).any(axis=(1, 2)))
            assert not len(wrong), (fen, moves, fill, wrong.tolist())


@pytest.mark.parametrize("turn", ["w", "b"])
@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("counters", ["0 1", "3 7"])
def test_start_position_with_all_castling_rights(turn: str, rights: str, counters: str) -> None:
    fen = f"{PLACEMENT} {turn} {rights} - {counters}"
    white, black = KNIGHTS_OUT_AND_BACK[::2], KNIGHTS_OUT_AND_BACK[1::2]
    first, second = (white, black) if turn == "w" else (black, white)
    shuffle = [move for pair in zip(first, second, strict=True) for move in pair] * 3
    for count in (0, 1, 4, 5, 8, 12):
        check(fen, shuffle[:count])
    push = ["e2e4", "e7e5", "e1e2", "e8e7", "e2e1", "e7e8"]
    push = push if turn == "w" else [push[index ^ 1] for index in range(6)]
    for count in (1, 2, 6):
        check(fen, push[:count])


@pytest.mark.parametrize(
    ("fen", "moves"),
    [
        # nobody can take, and lc0 still tells the FEN from the position that comes back: no repetition
        ("rnbqkbnr/pppp1ppp/8/4p3/8/P7/1PPPPPPP/RNBQKBNR w KQkq e6 0 2", KNIGHTS_OUT_AND_BACK * 2),
        # the capture would leave the king in check: not a right by the rules, a flag to lc0
        ("4k3/8/8/K2pP2r/8/8/8/8 w - d6 0 1", ["a5a4", "e8e7", "a4a5", "e7e8"] * 2),
        # the same reached by a push
        ("4k3/3p4/8/K3P2r/8/8/8/8 b - - 0 1", ["d7d5", *["a5a4", "e8e7", "a4a5", "e7e8"] * 2]),
        # a push that no pawn stands beside: the position repeats
        ("4k3/3p4/8/K7/7r/8/8/8 b - - 0 1", ["d7d5", *["a5b5", "e8e7", "b5a5", "e7e8"] * 2]),
        # castling rights are lost on the way: the pieces come back, the position does not
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", ["a1b1", "a8b8", "b1a1", "b8a8"] * 2),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 90 80", ["e1g1", "e8c8", *["f1e1", "d8e8", "e1f1", "e8d8"] * 2]),
    ],
)
def test_repetitions_and_en_passant_fields(fen: str, moves: list[str]) -> None:
    for count in range(len(moves) + 1):
        check(fen, moves[:count])
        mirrored = chess.Board(fen).mirror().fen(en_passant="fen")
        check(mirrored, [uci.translate(OTHER_RANKS) for uci in moves[:count]])


def test_positions_of_the_suites() -> None:
    for row in perft("standard")[::8]:
        if chess.Board(row.fen).is_valid():
            check(row.fen, [])
    for fen, _, flags in tricky():
        if not any(flag.startswith("python-chess-status") for flag in flags):
            check(fen, [])


@st.composite
def shuffles(draw: st.DrawFn) -> tuple[str, list[str], bool]:
    """A game that shuffles back and forth as often as not, from a start of any kind."""
    chess960 = draw(st.booleans())
    board = chess.Board.from_chess960_pos(draw(st.integers(0, 959))) if chess960 else chess.Board()
    board.turn = draw(st.booleans())
    board.castling_rights &= draw(st.sampled_from(KEPT))
    for _ in range(draw(st.integers(0, 20))):
        moves = list(board.legal_moves)
        if not moves:
            break
        board.push(draw(st.sampled_from(moves)))
    board.clear_stack()
    fen = board.fen(en_passant="fen", shredder=chess960)
    played: list[str] = []
    for _ in range(draw(st.integers(0, 14))):
        legal = list(board.legal_moves)
        if not legal:
            break
        back = [move for move in legal if len(board.move_stack) > 1 and undoes(move, board.move_stack[-2])]
        quiet = [move for move in legal if not board.is_zeroing(move)]
        turning_back: bool = draw(st.booleans())
        move = draw(st.sampled_from(back if back and turning_back else quiet or legal))
        played.append(board.uci(move))
        board.push(move)
    return fen, played, chess960


def undoes(move: chess.Move, before: chess.Move) -> bool:
    return (move.from_square, move.to_square) == (before.to_square, before.from_square)


@given(shuffles())
def test_random_games_from_random_starts(game: tuple[str, list[str], bool]) -> None:
    fen, moves, chess960 = game
    check(fen, moves, chess960=chess960)
