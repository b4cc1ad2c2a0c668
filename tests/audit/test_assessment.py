"""The assessment of an audit: whether a network is read correctly, in words."""

from __future__ import annotations

import pytest

from movemask.audit import assessment
from movemask.audit.assessment import assessment_of
from movemask.audit.summary import ModelSummary
from movemask.leakage.cells import ALL, CAUSE, Cell, CellKey


def summary(mean: float, count: int = 1000, *, masked: bool = False, castling: float = 0.0) -> ModelSummary:
    model = ModelSummary("mine", "sha256:0", masked, count, of_games=count)
    model.cells[CellKey("raw", ALL, "")] = Cell(count, flips=7, sum=mean * count)
    model.cells[CellKey("raw", CAUSE, "castling_path")] = Cell(count, sum=castling * mean * count)
    return model


def opening(model: ModelSummary, mean: float, count: int = 100) -> ModelSummary:
    model.cells[CellKey("raw", "phase", "opening")] = Cell(count, sum=mean * count)
    return model


def mixed(model: ModelSummary, of_games: int, mean: float) -> ModelSummary:
    """A network's summary over single positions too, with `mean` over the positions of games."""
    model.of_games, model.games = of_games, summary(mean, of_games)
    return model


def singles(model: ModelSummary) -> ModelSummary:
    model.of_games = 0
    return model


@pytest.mark.parametrize(
    ("model", "level", "words"),
    [
        (
            summary(0.006),
            "usual",
            "mine: 0.6 % of the probability is on illegal moves, 1.0 times the amount of networks",
        ),
        (summary(0.006, 50), "usual", "Only 50 positions were measured."),
        (summary(0.015), "high", "mine: more than expected: 1.5 % of the probability is on illegal moves, 2 times"),
        (summary(0.0269), "wrong", "mine: PROBABLY READ WRONGLY: 2.7 % of the probability"),
        (
            summary(0.0269, castling=0.8),
            "wrong",
            "read rightly, 80% of it castling_path; an illegal move comes first in 7",
        ),
        (
            opening(summary(0.010), 0.05),
            "wrong",
            "PROBABLY READ WRONGLY: 1 % of the probability is on illegal moves, in an",
        ),
        (opening(summary(0.010), 0.05, 10), "usual", "Mistakes in few moves, such as castling and promotions, need"),
        (summary(0.98), "wrong", "mine: READ WRONGLY, or untrained: 98 % of the probability is on illegal moves, 163"),
        (summary(0.98, masked=True), "unknown", "mine: trained with the mask, so leakage does not say how it is read"),
        (
            mixed(summary(0.047), 700, 0.006),
            "usual",
            "judges the 700 positions of games, not the 300 single",
        ),
        (mixed(summary(0.006), 700, 0.047), "wrong", "mine: PROBABLY READ WRONGLY: 4.7 % of the probability"),
        (mixed(summary(0.047), 40, 0.006), "unknown", "But only 40 of 1,000 positions come from games, and composed"),
        (mixed(summary(0.047), 40, 0.047), "unknown", "audit games with 200 positions or more, or run"),
        (singles(summary(0.006)), "usual", "mine: 0.6 % of the probability is on illegal moves, 1.0 times"),
        (singles(summary(0.047)), "unknown", "But no position comes from a game, and composed positions leak more"),
        (singles(summary(0.98)), "wrong", "mine: READ WRONGLY, or untrained: 98 % of the probability"),
        (ModelSummary("mine", "sha256:0", False), "unknown", "mine: raw leakage was not measured"),
    ],
)
def test_assessment_words(model: ModelSummary, level: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assessment, "IN_GAMES", {"right": 0.006})
    found = assessment_of(model)
    assert found.level == level
    assert words in found.words
    if model.of("raw").mean:
        assert "`movemask models check mine --diagnose`" in found.words
