"""What a user would lose: a card whose figures are those that the command printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from movemask.cli.models import quantisation_table
from movemask.quantisation.comparison import Apart, Judgement, Limits, Speed
from movemask.quantisation.positions import Sets
from movemask.quantisation.run import Quantised, contract_of, weights_for

SWEPT = Apart(200, 0.01, 0.001)


@pytest.mark.parametrize("ratio", [1.3252, 1.32499, 1.005])
def test_the_speed_is_rounded_once(tmp_path: Path, ratio: float) -> None:
    judgement = Judgement(1000, 800, 0.004, 0.04, 0.004, 0.9, 0, None, None, None, 0.1, 0.1, None)
    result = Quantised(b"", judgement, None, SWEPT, Speed(100.0, 75.46, ratio), ("a",), (), 64)
    (tmp_path / "n.toml").write_text("")
    known = Sets([], [], [], "games")
    card = contract_of(tmp_path / "n.toml", "sha256:0", result, known, weights_for(7), Limits())["card"]
    shown = replace(result.speed, ratio=card["quantised"]["speed"]["ratio"])
    assert quantisation_table(result, Limits()) == quantisation_table(replace(result, speed=shown), Limits())


def test_a_network_that_is_past_a_limit_from_bare_fens_alone_is_refused() -> None:
    """maia-1300 lost 0.43 points of human moves from bare FENs, and gained 0.08 with the games before them."""
    good = Judgement(1000, 800, 0.004, 0.04, 0.004, 0.9, 1000, 0.5, 0.5008, 0.001, 0.1, 0.1, None)
    bare = replace(good, accuracy_after=0.4957)
    result = Quantised(b"", good, bare, SWEPT, Speed(100.0, 70.0, 1.43), ("a",), (), 64)
    assert result.excess(Limits()) == ("from bare FENs: human-move accuracy 0.43 points lower, limit 0.3",)
    assert "0.43" not in quantisation_table(replace(result, bare=None), Limits())
