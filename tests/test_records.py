"""What an operator would lose: records that are of their own position, in whatever company they were made."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import chess
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from movemask.leakage.kinds import MEASURED, Plan
from movemask.records import DIMENSIONS, AuditBatch, AuditTable, groups
from tests.ground_truth import perft, tricky
from tests.leakage.batches import audited
from tests.networks import fake_model

WORDS = ("movemask-1880", "lc0-1858")
FEW = Plan().always


def boards() -> list[chess.Board]:
    """Standard and Chess960, with legal moves, in an order of no meaning."""
    found = [board for fen, moves, _ in tricky() if moves and (board := chess.Board(fen)).is_valid()][::9]
    found += [board for row in perft("chess960")[::60] if (board := chess.Board(row.fen, chess960=True)).is_valid()]
    return [found[place] for place in np.random.default_rng(1).permutation(len(found))]


BOARDS = boards()
MODELS = {name: fake_model(name, words=name) for name in WORDS}


def batch(places: Sequence[int], seed: int, name: str = "movemask-1880", kinds: Sequence[str] = MEASURED) -> AuditBatch:
    words, rng = vocabulary(name), np.random.default_rng(seed)
    logits = (rng.normal(size=(len(places), len(words))) * 3).astype(np.float32)
    made = audited([Position(BOARDS[place]) for place in places], words, logits, kinds=kinds, least=1e-3)
    elos = np.where(rng.random(len(places)) < 0.3, np.nan, np.round(3000 * rng.random(len(places))))
    return replace(made, model=MODELS[name], times=rng.random(len(places)), elos=elos)


def positions(table: AuditTable) -> dict[float, Any]:
    """Each position of a table by its time, which is drawn, and so tells the positions of a test apart."""
    groups, found = table.groups(), {}
    for row, moment in enumerate(table.times.tolist()):
        figures = {kind: one.figure(row) for kind, one in table.measured.items()}
        own = table.model, table.fens[row], bool(table.chess960[row]), repr(table.elos[row]), groups[:, row].tolist()
        found[moment] = (*own, figures, table.explained.of(row))
    return found


def together(tables: Sequence[AuditTable]) -> dict[float, Any]:
    return {moment: position for table in tables for moment, position in positions(table).items()}


PLACES = st.lists(st.integers(0, len(BOARDS) - 1), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PLACES, st.sampled_from(WORDS), st.booleans()), min_size=1, max_size=5), st.integers(0, 999))
def test_batches_put_together_give_the_positions_of_each_alone(
    parts: list[tuple[list[int], str, bool]], seed: int
) -> None:
    made = [
        batch(places, seed + number, name, MEASURED if every else FEW)
        for number, (places, name, every) in enumerate(parts)
    ]
    joined = AuditBatch.joined(made)
    assert len(joined) == len({(name, every) for _, name, every in parts})
    assert sum(map(len, joined)) == sum(map(len, made))
    assert together([part.table() for part in joined]) == together([part.table() for part in made])


@settings(max_examples=40, deadline=None)
@given(PLACES, st.integers(0, 999), st.data())
def test_some_rows_are_what_they_were_before_and_after_the_table_is_made(
    places: list[int], seed: int, data: st.DataObject
) -> None:
    whole = batch(places, seed)
    keep = np.array(sorted(data.draw(st.sets(st.integers(0, len(places) - 1)))), dtype=np.intp)
    expected = {moment: one for moment, one in positions(whole.table()).items() if moment in whole.times[keep]}
    assert positions(whole.rows(keep).table()) == expected
    assert positions(whole.table().rows(keep)) == expected


def test_networks_and_kinds_are_not_mixed() -> None:
    one = batch([0, 1], 1)
    others = [
        replace(one, model=fake_model("other")),
        batch([0, 1], 1, kinds=FEW),
        batch([0, 1], 1, "lc0-1858"),
    ]
    assert [len(part) for part in AuditBatch.joined([one, *others, one])] == [4, 2, 2, 2]
    assert AuditBatch.joined([]) == []


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
            band("elo", float(table.elos[row])),
        ]
        raw = table.measured["raw"].leaked[row]
        illegal, causes = table.explained.of(row)
        assert sum(causes.values()) <= raw * (1 + 1e-12)
        assert sum(move.probability for move in illegal) <= raw * (1 + 1e-12)
        legal = {move.uci() for move in board.legal_moves}
        assert legal.isdisjoint(move.uci for move in illegal if not _castling_slot(move.uci, board))


def band(dimension: str, value: float) -> str:
    """The band, such as `10-19` or `60+`, that holds a number."""
    if math.isnan(value):
        return "unknown"
    bands = [one for one in groups(dimension) if one != "unknown"]
    return next(one for one in reversed(bands) if value >= int(re.split("[-+]", one)[0]))


def _castling_slot(uci: str, board: chess.Board) -> bool:
    """Whether a slot is one of a king that goes two squares, where this vocabulary writes castling otherwise."""
    return not board.chess960 and bool(board.kings & chess.BB_SQUARES[chess.parse_square(uci[:2])])
