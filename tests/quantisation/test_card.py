"""What a user would lose: a card whose figures are those that the command printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from movemask.cli.quantisation_text import quantisation_table
from movemask.quantisation.card import contract_of
from movemask.quantisation.judgement import Judgement, Limits
from movemask.quantisation.positions import Sets
from movemask.quantisation.processor import weights_for
from movemask.quantisation.run import Quantised
from movemask.quantisation.timing import Speed


@pytest.mark.parametrize("ratio", [1.3252, 1.32499, 1.005])
def test_the_speed_is_rounded_once(tmp_path: Path, ratio: float) -> None:
    judgement = Judgement(1000, 800, 0.004, 0.04, 0.004, 0.9, 0, None, None, None, 0.1, 0.1, None)
    result = Quantised(b"", judgement, Speed(100.0, 75.46, ratio), ("a",), (), 64)
    (tmp_path / "n.toml").write_text("")
    known = Sets([], [], [], "games")
    card = contract_of(tmp_path / "n.toml", "sha256:0", result, known, weights_for(7), Limits())["card"]
    shown = replace(result.speed, ratio=card["quantised"]["speed"]["ratio"])
    assert quantisation_table(result, Limits()) == quantisation_table(replace(result, speed=shown), Limits())
