"""Causes of illegal slots, compared with python-chess.

For every illegal slot of every vocabulary, in positions of the suites and of games.
"""

from __future__ import annotations

from functools import cache

import chess
import numpy as np
import pytest

from movemask.board.boards import Boards
from movemask.board.moves import legal_moves
from movemask.board.position import Position
from movemask.encoding.vocabularies import FROM_TO, vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.leakage.causes import CAUSES, Cause, Written, causes_of
from tests.ground_truth import perft, tricky


def causes(rows: list[int], slots: list[int], boards: list[chess.Board], vocab: Vocabulary) -> list[Cause]:
    """Of illegal slots, each on the board of its row."""
    written = Written.of_slots(Boards.of(boards), np.array(rows), np.array(slots), vocab)
    return [CAUSES[cause] for cause in causes_of(written, [legal_moves([board]).codes for board in boards]).tolist()]


def squares(slot: int, board: chess.Board, vocab: Vocabulary) -> tuple[int, int, int | None] | None:
    entry = vocab.entries[slot]
    if entry is None:
        return None
    flip = vocab.flip.value if board.turn == chess.BLACK else 0
    return entry[0] ^ flip, entry[1] ^ flip, entry[2]


@cache
def pieces_that_could(source: int, target: int) -> frozenset[str]:
    """Which pieces alone on a board could go there, by python-chess's generator."""
    pieces = set()
    for piece in (chess.QUEEN, chess.KNIGHT):
        board = chess.Board(None)
        board.set_piece_at(source, chess.Piece(piece, chess.WHITE))
        if any(move.to_square == target for move in board.generate_pseudo_legal_moves()):
            pieces.add(chess.piece_name(piece))
    return frozenset(pieces)


def alone(board: chess.Board, source: int) -> chess.Board:
    """The piece alone on the board, with the same side to move."""
    piece = board.piece_at(source)
    assert piece is not None
    lonely = chess.Board(None)
    lonely.turn = board.turn
    lonely.set_piece_at(source, piece)
    return lonely


def reaches(board: chess.Board, source: int, target: int) -> bool:
    return any(m.to_square == target and m.from_square == source for m in board.generate_pseudo_legal_moves())


def taken_for(board: chess.Board, source: int, target: int) -> bool:
    """Whether the piece could go there with an enemy on the target and nothing else in the way."""
    lonely = alone(board, source)
    if reaches(lonely, source, target):
        return True
    lonely.set_piece_at(target, chess.Piece(chess.QUEEN, not board.turn))
    return reaches(lonely, source, target)


def is_impossible(where: tuple[int, int, int | None] | None) -> bool:
    if where is None:
        return True
    source, target, promotion = where
    ranks = chess.square_rank(source), chess.square_rank(target)
    one_file = abs(chess.square_file(source) - chess.square_file(target)) <= 1
    promotes = one_file and ranks in {(6, 7), (1, 0)}
    return not pieces_that_could(source, target) or (promotion is not None and not promotes)


def is_castling(source: int, target: int, board: chess.Board, vocab: Vocabulary) -> bool:
    """Whether the king's move is in the form in which the vocabulary writes castling."""
    home = 0 if board.turn == chess.WHITE else 56
    if vocab.castling is Castling.KING_TWO_SQUARES:
        return source == chess.E1 + home and target in (chess.C1 + home, chess.G1 + home)
    rooks = board.pieces(chess.ROOK, board.turn) & chess.BB_RANKS[chess.square_rank(home)]
    if not board.chess960:
        rooks &= chess.BB_CORNERS if source == chess.E1 + home else 0
    return chess.square_rank(source) == chess.square_rank(home) and target in rooks


def has_castling_right(source: int, target: int, board: chess.Board) -> bool:
    if board.chess960:
        return bool(board.clean_castling_rights() & chess.BB_SQUARES[target])
    if target > source:
        return board.has_kingside_castling_rights(board.turn)
    return board.has_queenside_castling_rights(board.turn)


def applies(cause: Cause, slot: int, board: chess.Board, vocab: Vocabulary) -> bool:
    """Whether the cause is true of an illegal slot by python-chess, if none before it is."""
    where = squares(slot, board, vocab)
    if cause is Cause.IMPOSSIBLE_SLOT:
        return is_impossible(where)
    assert where is not None
    source, target, promotion = where
    piece = board.piece_at(source)
    if cause is Cause.EMPTY_SQUARE:
        return piece is None
    assert piece is not None
    if cause is Cause.ENEMY_PIECE:
        return piece.color != board.turn
    pawn, straight = piece.piece_type == chess.PAWN, chess.square_file(source) == chess.square_file(target)
    captures_nothing = pawn and not straight and board.piece_at(target) is None
    move = chess.Move(source, target, chess.QUEEN if pawn and chess.square_rank(target) in (0, 7) else None)
    match cause:
        case Cause.CASTLING_RIGHT | Cause.CASTLING_PATH:
            if piece.piece_type != chess.KING or not is_castling(source, target, board, vocab):
                return False
            return has_castling_right(source, target, board) is (cause is Cause.CASTLING_PATH)
        case Cause.EN_PASSANT:
            beside = chess.square(chess.square_file(target), chess.square_rank(source))
            with_right = board.copy(stack=False)
            with_right.ep_square = target
            return (
                captures_nothing
                and chess.square_rank(source) == (4 if board.turn == chess.WHITE else 3)
                and board.piece_at(beside) == chess.Piece(chess.PAWN, not board.turn)
                and with_right.is_en_passant(move)
                and board.ep_square != target
            )
        case Cause.WRONG_GEOMETRY:
            return not taken_for(board, source, target) or (captures_nothing and not board.is_en_passant(move))
        case Cause.BLOCKED:
            between = chess.SquareSet.between(source, target) & board.occupied
            return bool(between) or (pawn and straight and board.color_at(target) is (not board.turn))
        case Cause.OWN_PIECE_ON_TARGET:
            return board.color_at(target) is board.turn
        case Cause.LEAVES_KING_IN_CHECK:
            return board.is_pseudo_legal(move) and board.is_into_check(move)
    assert cause is Cause.PROMOTION_FORM
    written = chess.Move(source, target, promotion)
    return board.is_legal(move) and (not board.is_legal(written) or vocab.bare_promotion is not None)


@pytest.mark.parametrize("name", vocabulary_names())
def test_cause_is_first_that_applies(name: str) -> None:
    """Of the members of `Cause` in their order, which is that of the table in docs/leakage.md."""
    vocab = vocabulary(name)
    boards = [board for fen, _, _ in tricky()[::20] if (board := chess.Board(fen)).is_valid()]
    if name in ("lc0-1858", "movemask-1880"):
        boards += [chess.Board(line.fen, chess960=True) for line in perft("chess960")[::80]]
    rows, slots = [], []
    for row, board in enumerate(boards):
        illegal = sorted(set(range(len(vocab))) - set(vocab.legal_slots(Position(board))[1].tolist()))
        rows += [row] * len(illegal)
        slots += illegal
    result = causes(rows, slots, boards, vocab)
    for row, slot, cause in zip(rows, slots, result, strict=True):
        assert cause is next(cause for cause in Cause if applies(cause, slot, boards[row], vocab))
    absent = {Cause.IMPOSSIBLE_SLOT, *([Cause.PROMOTION_FORM] if name in FROM_TO else [])}
    assert set(result) >= set(Cause) - absent
    assert (Cause.IMPOSSIBLE_SLOT in result) is (name in ("maia3-4352", "alphazero-4672", *FROM_TO))


def slot_of(uci: str, board: chess.Board, vocab: Vocabulary) -> int:
    """The slot that stands for these squares, whatever can be played."""
    move = chess.Move.from_uci(uci)
    return next(
        slot
        for slot in range(len(vocab))
        if squares(slot, board, vocab) == (move.from_square, move.to_square, move.promotion)
    )


@pytest.mark.parametrize(
    ("name", "fen", "uci", "cause"),
    [
        ("lc0-1858", chess.STARTING_FEN, "e1h1", Cause.CASTLING_PATH),
        ("lc0-1858", chess.STARTING_FEN, "e1g1", Cause.WRONG_GEOMETRY),
        ("maia2-1880", chess.STARTING_FEN, "e1g1", Cause.CASTLING_PATH),  # an own knight is on g1
        ("maia2-1880", "4k3/8/8/8/8/8/8/4K2R w - - 0 1", "e1g1", Cause.CASTLING_RIGHT),
        ("lc0-1858", "4k3/8/8/8/8/8/8/4K2R w - - 0 1", "e1h1", Cause.CASTLING_RIGHT),
        ("lc0-1858", "4kr2/8/8/8/8/8/8/4K2R w K - 0 1", "e1h1", Cause.CASTLING_PATH),
        ("maia2-1880", "4k3/8/8/3pP3/8/8/8/4K3 w - - 0 1", "e5d6", Cause.EN_PASSANT),
        ("maia2-1880", "8/8/8/K2pP2q/8/8/8/4k3 w - d6 0 1", "e5d6", Cause.LEAVES_KING_IN_CHECK),
        ("maia2-1880", "4k3/8/8/3pP3/8/8/8/4K3 w - - 0 1", "e5f6", Cause.WRONG_GEOMETRY),
        ("maia2-1880", "4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a7a8", Cause.PROMOTION_FORM),
        ("maia2-1880", "4k3/R7/8/8/8/8/8/4K3 w - - 0 1", "a7a8q", Cause.PROMOTION_FORM),
        ("maia2-1880", "n3k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a7a8q", Cause.BLOCKED),
        ("lc0-1858", "4k3/8/8/8/8/8/8/4KR2 w - - 0 1", "e1f1", Cause.OWN_PIECE_ON_TARGET),
        ("uci-1968", "4k3/8/8/8/8/8/P7/4K3 w - - 0 1", "a2a1q", Cause.WRONG_GEOMETRY),
        ("maia3-4352", chess.STARTING_FEN, "a1b8", Cause.IMPOSSIBLE_SLOT),
        ("maia2-1880", chess.STARTING_FEN, "a1a5", Cause.BLOCKED),
        ("maia2-1880", chess.STARTING_FEN, "e7e5", Cause.ENEMY_PIECE),
        ("maia2-1880", chess.STARTING_FEN, "e4e5", Cause.EMPTY_SQUARE),
    ],
)
def test_cause_of_single_slots(name: str, fen: str, uci: str, cause: Cause) -> None:
    board, vocab = chess.Board(fen), vocabulary(name)
    assert causes([0], [slot_of(uci, board, vocab)], [board], vocab) == [cause]


def test_legal_slot_has_no_cause() -> None:
    board, vocab = chess.Board(), vocabulary("movemask-1880")
    with pytest.raises(ValueError, match="can be played"):
        causes([0], [slot_of("e2e4", board, vocab)], [board], vocab)
