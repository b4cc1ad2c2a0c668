"""`LedgerTable`: the positions of answered batches with their traits."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
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
from movemask.leakage.kinds import MEASURED
from movemask.leakage.measure import Figure
from movemask.server.ledger.entries import AnsweredBatch, LedgerTable
from movemask.server.queue.pipeline import ClientPipeline
from tests.ground_truth import perft, tricky
from tests.leakage.batches import answered
from tests.networks import fake_model, pipeline
from tests.server.ledger.records import record

WORDS = ("movemask-1880", "lc0-1858")


def boards() -> list[chess.Board]:
    """Standard and Chess960, with legal moves, in an order of no meaning."""
    boards_of_suite = [board for fen, moves, _ in tricky() if moves and (board := chess.Board(fen)).is_valid()][::9]
    boards_of_suite += [
        board for row in perft("chess960")[::60] if (board := chess.Board(row.fen, chess960=True)).is_valid()
    ]
    return [boards_of_suite[place] for place in np.random.default_rng(1).permutation(len(boards_of_suite))]


BOARDS = boards()
MODELS = {name: fake_model(name, words=name) for name in WORDS}


def batch(places: Sequence[int], seed: int, name: str = "movemask-1880", failed: Sequence[int] = ()) -> AnsweredBatch:
    words, rng = vocabulary(name), np.random.default_rng(seed)
    logits = (rng.normal(size=(len(places), len(words))) * 3).astype(np.float32)
    elos = [None if rng.random() < 0.3 else round(3000 * rng.random()) for _ in places]
    read = [Position(BOARDS[place]) for place in places]
    return answered(read, words, logits, model=MODELS[name], time=float(seed), elos=elos, failed=failed)


def table_of(*batches: AnsweredBatch) -> LedgerTable:
    return LedgerTable.of(batches, MEASURED, 1e-3)


def positions(table: LedgerTable) -> list[Any]:
    """Each position of a table, with everything that the ledger gets of it."""
    groups, rows = table.groups(), []
    for row, moment in enumerate(table.times.tolist()):
        figures = {kind: one.figure(row) for kind, one in table.measured.items()}
        own = table.model, table.fens[row], bool(table.chess960[row]), table.elos[row], groups[:, row].tolist()
        rows.append((moment, *own, figures, table.explained.of(row)))
    return rows


PLACES = st.lists(st.integers(0, len(BOARDS) - 1), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(PLACES, min_size=1, max_size=5), st.sampled_from(WORDS), st.integers(0, 999))
def test_table_of_batches_has_positions_of_each(parts: list[list[int]], name: str, seed: int) -> None:
    batches = [batch(places, seed + number, name) for number, places in enumerate(parts)]
    apart = [position for one in batches for position in positions(table_of(one))]
    assert positions(table_of(*batches)) == apart


@settings(max_examples=40, deadline=None)
@given(PLACES, st.integers(0, 999), st.data())
def test_table_leaves_out_positions_without_answer(places: list[int], seed: int, data: st.DataObject) -> None:
    keep = sorted(data.draw(st.sets(st.integers(0, len(places) - 1), min_size=1)))
    failed = [row for row in range(len(places)) if row not in keep]
    table = table_of(batch(places, seed))
    expected = [positions(table)[row] for row in keep]
    assert positions(table.rows(keep)) == expected
    assert positions(table_of(batch(places, seed, failed=failed))) == expected


def test_table_matches_python_chess() -> None:
    table = table_of(batch(list(range(len(BOARDS))), 3))
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


def test_unwritable_answer_fails_only_its_caller() -> None:
    def write(answer: Answer, _: int) -> str:
        if answer.position.turn == "black":
            raise ZeroDivisionError
        return answer.position.turn

    async def story() -> None:
        client = ClientPipeline(queue, "", lambda submission: None)
        both = [client.submit([Query(), Query(moves=moves)], write) for moves in ((), ("e2e4",))]
        good, bad = await asyncio.gather(*both, return_exceptions=True)
        assert good == ["white", "white"]
        assert isinstance(bad, ZeroDivisionError)

    queue = pipeline(fake_model())
    asyncio.run(story())
    queue.close()


def test_sound_excludes_invalid_figures() -> None:
    good = [record(0.25, causes={Cause.BLOCKED: 0.25}), record(None)]
    bad = [
        record(math.inf),
        record(-0.5),
        record(0.25, causes={Cause.BLOCKED: math.nan}),
        record(fen=f"{chess.STARTING_FEN}{'0' * 1000}"),  # PostgreSQL would name it as it names a full disk
        record(more={"multiplied": Figure(0.5, kl=math.nan)}),
    ]
    assert LedgerTable.joined([*good, *bad]).sound().tolist() == [0, 1]
