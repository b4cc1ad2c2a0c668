"""What an operator would lose: records that are of their own position, in whatever company they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.boards import phase_of
from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from movemask.leakage.audited import Audited, records_of
from movemask.leakage.kinds import ALWAYS, KINDS
from movemask.leakage.record import AuditRecord
from tests.ground_truth import perft, tricky
from tests.leakage.batches import audited

WORDS = ("movemask-1880", "lc0-1858")


def boards() -> list[chess.Board]:
    """Standard and Chess960, with legal moves, in an order of no meaning."""
    found = [board for fen, moves, _ in tricky() if moves and (board := chess.Board(fen)).is_valid()][::9]
    found += [board for row in perft("chess960")[::60] if (board := chess.Board(row.fen, chess960=True)).is_valid()]
    return [found[place] for place in np.random.default_rng(1).permutation(len(found))]


BOARDS = boards()


def batch(places: Sequence[int], seed: int, name: str = "movemask-1880", kinds: Sequence[str] = KINDS) -> Audited:
    words, rng = vocabulary(name), np.random.default_rng(seed)
    logits = (rng.normal(size=(len(places), len(words))) * 3).astype(np.float32)
    made = audited([Position(BOARDS[place]) for place in places], words, logits, kinds=kinds, least=1e-3)
    elos = [None if draw < 0.3 else float(round(3000 * draw)) for draw in rng.random(len(places)).tolist()]
    unanswered = frozenset(np.flatnonzero(rng.random(len(places)) < 0.2).tolist())
    return replace(made, times=rng.random(len(places)).tolist(), elos=elos, unanswered=unanswered)


def keyed(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Times are drawn, and so tell the records of a test apart."""
    return sorted(records, key=lambda record: record.time)


PLACES = st.lists(st.integers(0, len(BOARDS) - 1), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PLACES, st.sampled_from(WORDS), st.booleans()), min_size=1, max_size=5), st.integers(0, 999))
def test_batches_put_together_give_the_records_of_each_alone(
    parts: list[tuple[list[int], str, bool]], seed: int
) -> None:
    made = [
        replace(batch(places, seed + number, name, KINDS if every else ALWAYS), model=name)
        for number, (places, name, every) in enumerate(parts)
    ]
    together = Audited.joined(made)
    assert len(together) == len({(name, every) for _, name, every in parts})
    assert sum(map(len, together)) == sum(map(len, made))
    alone = [record for part in made for record in records_of(part)]
    assert keyed([record for part in together for record in records_of(part)]) == keyed(alone)
    assert len(alone) == sum(map(len, made))


@settings(max_examples=20, deadline=None)
@given(PLACES, st.integers(0, 999))
def test_a_batch_gives_the_records_of_its_rows(places: list[int], seed: int) -> None:
    whole = batch(places, seed)
    rows = [whole.row(row) for row in range(len(places))]
    assert [record for row in rows for record in records_of(row)] == records_of(whole)
    assert keyed([record for part in Audited.joined(rows) for record in records_of(part)]) == keyed(records_of(whole))


def test_networks_and_kinds_are_not_mixed() -> None:
    one = batch([0, 1], 1)
    others = [
        replace(one, model="other"),
        replace(one, digest="sha256:" + "1" * 64),
        batch([0, 1], 1, kinds=ALWAYS),
        batch([0, 1], 1, "lc0-1858"),
    ]
    assert [len(part.positions) for part in Audited.joined([one, *others, one])] == [4, 2, 2, 2, 2]
    assert Audited.joined([]) == []


def test_a_record_tells_its_own_position_as_python_chess_sees_it() -> None:
    places = list(range(len(BOARDS)))
    made = replace(batch(places, 3), unanswered=frozenset({2, 5}))
    records = records_of(made)
    answered = [place for place in places if place not in (2, 5)]
    assert len(records) == len(made) == len(answered)
    for record, place in zip(records, answered, strict=True):
        board = BOARDS[place]
        assert (record.fen, record.chess960) == (board.fen(en_passant="fen"), board.chess960)
        assert (record.time, record.traits.elo) == (made.times[place], made.elos[place])
        assert record.traits.turn == ("white" if board.turn else "black")
        assert record.traits.in_check == board.is_check()
        assert record.traits.legal_moves == board.legal_moves.count()
        assert record.traits.phase == phase_of(board)
        assert set(record.leakage.figures) == set(KINDS)
        assert record.leakage.served == 0.0
        raw = record.leakage.raw
        assert raw is not None
        assert sum(record.leakage.causes.values()) <= raw * (1 + 1e-12)
        assert sum(move.probability for move in record.leakage.illegal) <= raw * (1 + 1e-12)
        legal = {move.uci() for move in board.legal_moves}
        assert legal.isdisjoint(move.uci for move in record.leakage.illegal if not _castling_slot(move.uci, board))


def _castling_slot(uci: str, board: chess.Board) -> bool:
    """Whether a slot is one of a king that goes two squares, where this vocabulary writes castling otherwise."""
    return not board.chess960 and bool(board.kings & chess.BB_SQUARES[chess.parse_square(uci[:2])])


def test_the_mass_by_cause_is_the_heavy_slots_mass() -> None:
    made = batch(list(range(12)), 4)
    records = records_of(replace(made, unanswered=frozenset()))
    mass = np.bincount(made.heavy.rows, made.heavy.masses, minlength=12)
    assert [sum(record.leakage.causes.values()) for record in records] == pytest.approx(mass.tolist(), rel=1e-12)
