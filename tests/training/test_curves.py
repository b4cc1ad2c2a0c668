"""Curves of move probability by rating: jumps and differences."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from movemask.board.moves import moves_of
from movemask.games.sweep import RATINGS
from movemask.network.files import shipped_models
from movemask.network.registry import open_model
from movemask.network_tools.diagnosis import commonest
from movemask.policy.ragged import Float
from tests.ground_truth import DATA
from tests.networks import fake_model
from training.curves import SEEN_LARGEST, SEEN_MEAN, Apart, apart, curves

SHIPPED = "movemask-8"
#: Of a move's probability from one rating to the next, beyond the teacher's change there or beside it.
JUMP = 0.045


def jumps(mine: Float, teachers: Float) -> NDArray[np.float64]:
    """How much more curves `[ratings, moves]` change from one rating to the next than the teacher's do."""
    steps, its = (np.abs(np.diff(one, axis=0)) for one in (mine, teachers))
    beside = np.stack([np.roll(np.pad(its, ((1, 1), (0, 0))), shift, axis=0)[1:-1] for shift in (-1, 0, 1)])
    return np.asarray(steps - beside.max(axis=0))


@pytest.fixture(scope="module")
def both() -> list[tuple[Float, Float]]:
    """Curves of the shipped network and of Maia-3 for the moves that Maia-3 gives 2 % somewhere."""
    model = open_model(shipped_models() / f"{SHIPPED}.toml", 1)
    rows = [json.loads(line) for line in (DATA / "maia3_curves.jsonl").read_text().splitlines()]
    pairs = []
    for row, position in zip(rows, commonest(20), strict=True):
        assert position.fen == row["fen"]
        batch = model.whole_batch([position], [None])
        columns = [[move.uci() for move in moves_of(batch.codes)].index(uci) for uci in row["curves"]]
        pairs.append((curves(model, [position])[0][:, columns], np.array(list(row["curves"].values())).T))
    return pairs


def test_shipped_network_jumps_no_more_than_teacher(both: list[tuple[Float, Float]]) -> None:
    assert max(float(jumps(*pair).max()) for pair in both) < JUMP


def test_curves_and_differences() -> None:
    rated = {"planes": "planes", "elo_self": "elo_self", "elo_opponent": "elo_opponent"}
    positions = commonest(3)
    assert [position.has_history for position in positions] == [False, True, True]
    model, blind = fake_model(inputs=rated), fake_model()
    swept, flat = curves(model, positions), curves(blind, positions)
    for position, one in zip(positions, swept, strict=True):
        assert one.shape == (len(RATINGS), position.board.legal_moves.count())
        np.testing.assert_allclose(one.sum(axis=1), 1)
    assert all(np.ptp(one, axis=0).max() == 0 for one in flat)
    assert all(np.ptp(one, axis=0).max() > 0.01 for one in swept)
    changed = [one.copy() for one in swept]
    changed[1][3, 4] += 0.25
    difference = apart(swept, changed)
    assert difference.positions == 3
    assert difference.largest == pytest.approx(0.25)
    assert difference.mean == pytest.approx(0.25 / sum(one.size for one in swept))


def test_visible_differences() -> None:
    assert not Apart(200, SEEN_LARGEST, SEEN_MEAN).seen
    assert Apart(200, 0.031, 0.0).seen
    assert Apart(200, 0.01, 0.0031).seen
    assert Apart(200, float("nan"), float("nan")).seen
