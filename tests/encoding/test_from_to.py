"""from-to-4096 and files of moves: layouts, promotions, line-named faults."""

from __future__ import annotations

import chess
import pytest

from movemask.board.position import Position
from movemask.encoding.moves_file import MovesFile
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import ContractError, MoveOutsideVocabulary

WHITE = "8/P1k5/8/8/8/8/8/K6R w - - 0 1"
BLACK = "k6r/8/8/8/8/2K5/p7/8 b - - 0 1"


@pytest.mark.parametrize("by_file", [False, True], ids=["by rank", "by file"])
@pytest.mark.parametrize("view", ["", "-white"])
def test_from_to_slots_are_source_times_64_plus_target(by_file: bool, view: str) -> None:
    words = vocabulary(f"from-to-4096{'-by-file' if by_file else ''}{view}")
    for fen in (WHITE, BLACK, chess.STARTING_FEN):
        board = chess.Board(fen)
        position = Position(board)
        moves, slots = words.legal_slots(position)
        for move, slot in zip(moves, slots.tolist(), strict=True):
            squares = [move.from_square, move.to_square]
            if not view and board.turn == chess.BLACK:
                squares = [square ^ 56 for square in squares]
            if by_file:
                squares = [chess.square_file(square) * 8 + chess.square_rank(square) for square in squares]
            assert slot == squares[0] * 64 + squares[1]
            assert words.move(slot, board) == move
        missing = {move for move in board.legal_moves if move.promotion not in (None, chess.QUEEN)}
        assert set(words.without_slot(position)) == missing == set(board.legal_moves) - set(moves)


def test_complete_vocabulary_refuses_a_move_without_slot() -> None:
    with pytest.raises(MoveOutsideVocabulary, match=r"a7a8[rbn] in '8/P1k5"):
        vocabulary("from-to-4096").changed(complete=True).legal_slots(Position.read(WHITE))


def test_position_with_no_slot_at_all_is_refused() -> None:
    """It is no stalemate."""
    words = MovesFile.read("m.txt", b"a2a3\n").vocabulary("side_to_move")
    with pytest.raises(MoveOutsideVocabulary, match=r"no legal move of .* has a slot in the vocabulary m\.txt"):
        words.legal_slots(Position.read("8/8/8/8/8/8/8/K6k w - - 0 1"))
    moves, _ = words.legal_slots(Position.read())
    assert [move.uci() for move in moves] == ["a2a3"]
    assert len(words.without_slot(Position.read())) == 19


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"e2e4\ne2e9\n", "m.txt: line 2: 'e2e9': not a move in UCI"),
        (b"e2e4\n\ne2e4\n", "m.txt: line 3: e2e4 is on line 1 already"),
        (b"e2e2", "m.txt: line 1: 'e2e2': a move to its own square: leave the line blank"),
        (b"e7e8k", "m.txt: line 1: 'e7e8k': not a move in UCI"),
        (b"e2e4q", "m.txt: line 1: 'e2e4q': no pawn promotes between these squares"),
        (b"e2e4\n\xff\n", "m.txt: line 2: not UTF-8 text"),
        (b"\n\n", "m.txt: no move in it"),
        (b"\n" * 9000, "m.txt: 9000 lines; at most 8192 are allowed"),
        (b"e2e4\n" * 40_000, "m.txt: larger than 131072 bytes"),
        (b"a7a8q\na2a1q\n", "m.txt: line 2: a promotion of Black, and contract.perspective is side_to_move"),
    ],
)
def test_moves_file_names_the_faulty_line(content: bytes, words: str) -> None:
    with pytest.raises(ContractError) as error:
        MovesFile.read("m.txt", content).vocabulary("side_to_move")
    assert str(error.value).startswith(words)


@pytest.mark.parametrize(
    ("letters", "bare"), [("qrb", chess.KNIGHT), ("rbn", chess.QUEEN), ("qrbn", None), ("q", None), ("", None)]
)
def test_moves_file_infers_the_bare_promotion(letters: str, bare: int | None) -> None:
    lines = ["a7a8", *(f"a7a8{letter}" for letter in letters)]
    words = MovesFile.read("m.txt", "\r\n".join(lines).encode()).vocabulary("white")
    assert words.bare_promotion == bare
    assert words.names() == tuple(lines)


@pytest.mark.parametrize("name", ["lc0-1858", "alphazero-4672", "uci-1968", "maia2-1880"])
def test_moves_file_of_a_known_vocabulary_has_its_slots(name: str) -> None:
    known = vocabulary(name)
    file = MovesFile.read("m.txt", "\n".join(known.names()).encode())
    words = file.vocabulary("side_to_move" if known.mirrored else "white").changed(castling=known.castling)
    for fen in (WHITE, BLACK, chess.STARTING_FEN, "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1"):
        position = Position.read(fen)
        moves, slots = known.legal_slots(position)
        own, own_slots = words.legal_slots(position)
        assert (own, own_slots.tolist()) == (moves, slots.tolist())
