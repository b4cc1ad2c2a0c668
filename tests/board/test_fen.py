"""What a user would lose: a FEN that is read exactly as python-chess reads it, or refused in its words."""

from __future__ import annotations

import re

import chess
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from movemask.board import fen
from movemask.board.fen import board_of
from tests.ground_truth import perft, tricky


def same(text: str, *, chess960: bool = False) -> bool:
    """Holds the reader to python-chess; whether there is a board."""
    why = None
    try:
        expected = chess.Board(text, chess960=chess960)
    except ValueError as error:
        why = str(error)
    if why is not None:
        with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
            board_of(text, chess960=chess960)
        return False
    found = board_of(text, chess960=chess960)
    assert found == expected, text
    for name in ("castling_rights", "ep_square", "halfmove_clock", "fullmove_number", "promoted", "chess960", "turn"):
        assert getattr(found, name) == getattr(expected, name), (text, name)
    assert found.occupied_co == expected.occupied_co
    assert found.status() == expected.status()
    assert list(found.legal_moves) == list(expected.legal_moves)
    assert found.fen(en_passant="fen") == expected.fen(en_passant="fen")
    assert found.move_stack == []
    return True


def test_every_position_of_the_suites_and_most_without_python_chess() -> None:
    texts = [row.fen for row in perft("standard")] + [text for text, _, _ in tricky()]
    assert all(same(text) for text in texts)
    assert sum(fen._PLAIN.fullmatch(text) is not None for text in texts) > 0.9 * len(texts)
    assert all(same(row.fen, chess960=True) for row in perft("chess960"))
    for row in perft("chess960")[::10]:
        same(row.fen)  # Shredder's letters on a standard board


FIELDS = chess.STARTING_FEN.split()


PLACEMENTS = st.one_of(st.just(FIELDS[0]), st.text("12345678PNBRQKpnbrqk/~.x", max_size=75))
RIGHTS = st.one_of(st.sampled_from(["-", "KQkq", "", "Kq", "qk", "AHah", "KK", "x"]), st.text("KQkq-", max_size=5))
COUNTERS = st.sampled_from(["0", "1", "50", "00", "01", "-1", "x", "99999", "999999", "\u0663", ""])


@settings(max_examples=400, deadline=None)
@given(
    st.tuples(
        PLACEMENTS,
        st.sampled_from(["w", "b", "W", ""]),
        RIGHTS,
        st.sampled_from(["-", "e3", "e6", "e9", "a1", "E3", ""]),
        COUNTERS,
        COUNTERS,
    )
)
@example((FIELDS[0], "w", "", "-", "0", "1"))
@example(("8/8/8/8/8/8/8/8", "w", "KQkq", "e3", "0", "1"))
@example(("8/8/8/8/8/8/8/44", "w", "-", "-", "0", "1"))
@example(("9/8/8/8/8/8/8/8", "w", "-", "-", "0", "1"))
@example(("pppppppp/8/8/8/8/8/8/7", "w", "-", "-", "0", "1"))
def test_any_six_fields(fields: tuple[str, ...]) -> None:
    same(" ".join(fields))


@given(st.text(max_size=40))
@example("")
@example("  ")
@example(chess.STARTING_FEN + "\n")
@example(chess.STARTING_FEN + " ")
@example(" " + chess.STARTING_FEN)
@example(chess.STARTING_FEN.replace(" ", "  "))
def test_any_text(text: str) -> None:
    same(text)
