"""What an operator would lose: records that are of their own position, in whatever company they were made."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from movemask.evaluate import Answer, Query
from movemask.leakage.causes import Cause
from movemask.leakage.groups import DIMENSIONS, groups
from movemask.leakage.kinds import MEASURED, Plan
from movemask.server.ledger.entries import LedgerBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.metrics import Metrics
from movemask.server.queue.pipeline import Pipeline
from tests.ground_truth import perft, tricky
from tests.leakage.batches import audited
from tests.networks import fake_model, pipeline
from tests.server.ledger.records import joined, record, recording

WORDS = ("movemask-1880", "lc0-1858")
FEW = Plan().always


def boards() -> list[chess.Board]:
    """Standard and Chess960, with legal moves, in an order of no meaning."""
    found = [board for fen, moves, _ in tricky() if moves and (board := chess.Board(fen)).is_valid()][::9]
    found += [board for row in perft("chess960")[::60] if (board := chess.Board(row.fen, chess960=True)).is_valid()]
    return [found[place] for place in np.random.default_rng(1).permutation(len(found))]


BOARDS = boards()
MODELS = {name: fake_model(name, words=name) for name in WORDS}


def batch(
    places: Sequence[int], seed: int, name: str = "movemask-1880", kinds: Sequence[str] = MEASURED
) -> LedgerBatch:
    words, rng = vocabulary(name), np.random.default_rng(seed)
    logits = (rng.normal(size=(len(places), len(words))) * 3).astype(np.float32)
    made = audited([Position(BOARDS[place]) for place in places], words, logits, kinds=kinds, least=1e-3)
    elos = [None if rng.random() < 0.3 else round(3000 * rng.random()) for _ in places]
    return replace(made, model=MODELS[name], times=rng.random(len(places)), elos=elos)


def positions(table: LedgerTable) -> dict[float, Any]:
    """Each position of a table by its time, which is drawn, and so tells the positions of a test apart."""
    groups, found = table.groups(), {}
    for row, moment in enumerate(table.times.tolist()):
        figures = {kind: one.figure(row) for kind, one in table.measured.items()}
        own = table.model, table.fens[row], bool(table.chess960[row]), table.elos[row], groups[:, row].tolist()
        found[moment] = (*own, figures, table.explained.of(row))
    return found


def together(tables: Sequence[LedgerTable]) -> dict[float, Any]:
    return {moment: position for table in tables for moment, position in positions(table).items()}


PLACES = st.lists(st.integers(0, len(BOARDS) - 1), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PLACES, st.sampled_from(WORDS), st.booleans()), min_size=1, max_size=5), st.integers(0, 999))
def test_joined_batches_have_the_positions_of_each(parts: list[tuple[list[int], str, bool]], seed: int) -> None:
    made = [
        batch(places, seed + number, name, MEASURED if every else FEW)
        for number, (places, name, every) in enumerate(parts)
    ]
    whole = LedgerBatch.by_network(made)
    assert len(whole) == len({(name, every) for _, name, every in parts})
    assert sum(map(len, whole)) == sum(map(len, made))
    assert together([part.table() for part in whole]) == together([part.table() for part in made])


@settings(max_examples=40, deadline=None)
@given(PLACES, st.integers(0, 999), st.data())
def test_some_rows_are_as_they_were(places: list[int], seed: int, data: st.DataObject) -> None:
    whole = batch(places, seed)
    keep = np.array(sorted(data.draw(st.sets(st.integers(0, len(places) - 1)))), dtype=np.intp)
    expected = {moment: one for moment, one in positions(whole.table()).items() if moment in whole.times[keep]}
    assert positions(whole.rows(keep).table()) == expected
    assert positions(whole.table().rows(keep)) == expected


def test_a_table_tells_its_positions_as_python_chess_sees_them() -> None:
    made = batch(list(range(len(BOARDS))), 3)
    table = made.table()
    assert len(table) == len(BOARDS)
    for row, board in enumerate(BOARDS):
        assert (table.fens[row], table.chess960[row]) == (board.fen(en_passant="fen"), board.chess960)
        pieces = sum(piece.piece_type not in (chess.KING, chess.PAWN) for piece in board.piece_map().values())
        phase = "endgame" if pieces <= 6 else "opening" if board.ply() < 20 else "middlegame"
        named = [groups(name)[place] for name, place in zip(DIMENSIONS, table.groups()[:, row], strict=True)]
        assert named == [
            phase,
            "white" if board.turn else "black",
            "true" if board.is_check() else "false",
            band("legal_moves", board.legal_moves.count()),
            band("elo", table.elos[row]),
        ]
        raw = table.measured["raw"].leaked[row]
        illegal, causes = table.explained.of(row)
        assert sum(causes.values()) <= raw * (1 + 1e-12)
        assert sum(move.probability for move in illegal) <= raw * (1 + 1e-12)
        legal = {move.uci() for move in board.legal_moves}
        assert legal.isdisjoint(move.uci for move in illegal if not _castling_slot(move.uci, board))


def band(dimension: str, value: float | None) -> str:
    """The band, such as `10-19` or `60+`, that holds a number."""
    if value is None:
        return "unknown"
    bands = [one for one in groups(dimension) if one != "unknown"]
    return next(one for one in reversed(bands) if value >= int(re.split("[-+]", one)[0]))


def _castling_slot(uci: str, board: chess.Board) -> bool:
    """Whether a slot is one of a king that goes two squares, where this vocabulary writes castling otherwise."""
    return not board.chess960 and bool(board.kings & chess.BB_SQUARES[chess.parse_square(uci[:2])])


def test_a_batch_whose_leakage_cannot_be_measured_is_answered_and_counted_as_dropped(tmp_path: Path) -> None:
    class Broken(Plan):
        def drawn(self, chance: float) -> tuple[str, ...]:
            raise MemoryError

    ledger = Ledger(f"sqlite:///{tmp_path}/audit.db", keep_seconds=3600, keep_positions=100, keep_worst=10)
    recorder = recording(ledger)
    asked = Pipeline(fake_model(), recorder, plan=Broken(), max_batch=8, max_waiting=100)
    queries = [Query(moves=("e2e4",)), Query(moves=("d2d4",))]
    assert asyncio.run(asked.submit([(query, lambda answer: answer.status) for query in queries])) == [
        "ongoing",
        "ongoing",
    ]
    asked.close()
    recorder.close(60)
    assert (recorder.dropped, recorder.waiting) == (2, 0)
    ledger.close()


def test_an_answer_that_cannot_be_written_costs_its_caller_alone() -> None:
    def write(answer: Answer) -> str:
        if answer.position.turn == "black":
            raise ZeroDivisionError
        return answer.position.turn

    async def story() -> None:
        both = [asked.submit([(query, write) for query in (Query(), Query(moves=moves))]) for moves in ((), ("e2e4",))]
        good, bad = await asyncio.gather(*both, return_exceptions=True)
        assert good == ["white", "white"]
        assert isinstance(bad, ZeroDivisionError)

    asked = pipeline(fake_model())
    asyncio.run(story())
    asked.close()


def test_counters_never_take_what_would_spoil_them_for_good() -> None:
    metrics = Metrics()
    good = record(0.25, causes={Cause.BLOCKED: 0.25})
    bad = [record(None), record(math.inf), record(-1.0), record(0.25, causes={Cause.BLOCKED: math.nan})]
    for table in (good, *bad, *joined([good, record(0.5, more={}), *bad])):
        metrics.count_leakage(table)
    text = metrics.exposition().decode()
    assert 'movemask_leakage_sum{kind="raw",model="net",trained_with_mask="false"} 1.5' in text
    assert 'movemask_illegal_mass_total{cause="blocked",model="net",trained_with_mask="false"} 0.5' in text
    assert "NaN" not in text
