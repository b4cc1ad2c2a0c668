"""Built-in vocabularies: sizes, orders, castling and promotion slots."""

from __future__ import annotations

import chess
import pytest

from movemask.board.position import Position
from movemask.encoding.vocabularies import FROM_TO, vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Vocabulary
from movemask.errors import ContractError, UnsupportedVariant
from tests.ground_truth import lc0_slots, maia2_moves, perft, pgx_positions, suite, tricky

SIZES = {
    "alphazero-4672": 4672,
    **dict.fromkeys(FROM_TO, 4096),
    "lc0-1858": 1858,
    "maia2-1880": 1880,
    "maia3-4352": 4352,
    "movemask-1880": 1880,
    "uci-1968": 1968,
}
CASTLING = "r3k2r/8/8/8/8/8/8/R3K2R {} KQkq - 0 1"
OTHER_RANKS = str.maketrans("1278", "8721")
PROMOTIONS = "1n5k/P7/8/8/8/8/p7/1N5K {} - - 0 1"


@pytest.fixture(params=sorted(SIZES))
def any_vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return vocabulary(request.param)


def test_sizes_and_names() -> None:
    assert {name: len(vocabulary(name)) for name in vocabulary_names()} == SIZES
    with pytest.raises(ContractError, match="no vocabulary 'lc0'; available: alphazero-4672, from-to-4096, "):
        vocabulary("lc0")


def test_lc0_slots_match_lc0() -> None:
    for fen, expected in lc0_slots():
        moves, slots = vocabulary("lc0-1858").legal_slots(Position.read(fen))
        assert dict(zip((move.uci() for move in moves), slots.tolist(), strict=True)) == expected


def test_maia2_order_matches_its_package() -> None:
    assert vocabulary("maia2-1880").names() == maia2_moves()


def test_maia3_slots_match_public_readers() -> None:
    """Facts from MODELS.md and from a public reader's own test of its table."""
    names = vocabulary("maia3-4352").names()
    slots = {"a1a1": 0, "a1h8": 63, "e2e4": 12 * 64 + 28, "a7a8q": 4096, "a7a8r": 4097, "a7a8b": 4098, "a7a8n": 4099}
    assert {name: names.index(name) for name in slots} == slots
    assert names[-1] == "h7h8n"
    could_be = [n for n in names if (n[4:] and abs(ord(n[0]) - ord(n[2])) <= 1) or (not n[4:] and _reachable(n))]
    assert len(names) - len(could_be) == 2472


def _reachable(name: str) -> bool:
    across, up = abs(ord(name[0]) - ord(name[2])), abs(ord(name[1]) - ord(name[3]))
    return name[:2] != name[2:] and (0 in (across, up) or across == up or {across, up} == {1, 2})


def test_alphazero_slots_match_pgx() -> None:
    """The legal slots that pgx itself gives, over games that it played; how they were made: tests/data/README.md."""
    words = vocabulary("alphazero-4672")
    for fen, _, expected, _ in pgx_positions():
        _, slots = words.legal_slots(Position.read(fen))
        assert slots.tolist() == expected, fen


def test_uci_order_is_by_square_then_promotions() -> None:
    names = vocabulary("uci-1968").names()
    assert names[:3] == ("a1b1", "a1c1", "a1d1")
    assert names[21:24] == ("a1c2", "a1b3", "b1a1")
    assert names[1792:1796] == ("a2a1q", "a2a1r", "a2a1b", "a2a1n")
    assert names[1792 + 88 : 1792 + 92] == ("a7a8q", "a7a8r", "a7a8b", "a7a8n")
    assert names[1792 + 92] == "a7b8q"
    assert (names[1792 + 96], names[1792 + 100], names[1792 + 104]) == ("b7b8q", "b7a8q", "b7c8q")
    board = chess.Board("4k3/8/8/8/8/8/p7/4K3 b - - 0 1")  # Black's moves are not mirrored
    assert names[vocabulary("uci-1968").slot(chess.Move.from_uci("a2a1n"), board)] == "a2a1n"


def test_legal_moves_and_slots_round_trip(any_vocabulary: Vocabulary) -> None:
    boards = [*suite("standard", 16), *map(chess.Board, [fen for fen, _, _ in tricky()])]
    for board in (*boards, *suite("chess960", 16)) if any_vocabulary.chess960 else boards:
        moves, slots = any_vocabulary.legal_slots(Position(board))
        left_out = any_vocabulary.without_slot(Position(board))
        assert len(set(slots.tolist())) == len(moves) == board.legal_moves.count() - len(left_out)
        assert tuple(any_vocabulary.move(slot, board) for slot in slots.tolist()) == moves


def test_chess960_without_its_castling_raises() -> None:
    position = Position.read(perft("chess960")[0].fen, chess960=True)
    with pytest.raises(UnsupportedVariant, match="chess960: the vocabulary maia2-1880"):
        vocabulary("maia2-1880").legal_slots(position)


@pytest.mark.parametrize("turn", ["w", "b"])
@pytest.mark.parametrize(
    ("name", "kingside", "queenside", "queen", "knight"),
    [
        ("lc0-1858", "e1h1", "e1a1", "a7a8q", "a7a8"),
        ("movemask-1880", "e1h1", "e1a1", "a7a8q", "a7a8n"),
        ("maia2-1880", "e1g1", "e1c1", "a7a8q", "a7a8n"),
        ("maia3-4352", "e1g1", "e1c1", "a7a8q", "a7a8n"),
        ("alphazero-4672", "e1g1", "e1c1", "a7a8", "a7a8n"),
    ],
)
def test_slots_of_castling_and_promotions(
    turn: str, name: str, kingside: str, queenside: str, queen: str, knight: str
) -> None:
    def slot_name(fen: str, uci: str) -> str:
        move = chess.Move.from_uci(uci if turn == "w" else uci.translate(OTHER_RANKS))
        return vocabulary(name).names()[vocabulary(name).slot(move, chess.Board(fen.format(turn)))]

    assert [slot_name(CASTLING, uci) for uci in ("e1g1", "e1c1")] == [kingside, queenside]
    promotions = [slot_name(PROMOTIONS, uci) for uci in ("a7a8q", "a7b8r", "a7a8n")]
    assert promotions == [queen, "a7b8r", knight]
