"""Forecasts: the value from one ply ahead."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.games.test_think_time import RULES
from tests.server.asking import asked

#: Every rule leaves other moves or other probabilities here.
FEN = "r1bqkbnr/pp1ppppp/2n5/2p5/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 12"


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_forecast_does_not_depend_on_the_rule(shipped: TestClient, rule: dict[str, Any]) -> None:
    plain = asked(shipped, fen=FEN, include=["forecast"])["forecast"]
    assert asked(shipped, fen=FEN, include=["forecast"], **rule)["forecast"] == pytest.approx(plain, abs=1e-4)
