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
            "mine: raw leakage 0.6 %: typical of a correctly read network (0.4 % to 0.6 %). Mistakes in few moves",
        ),
        (
            summary(0.008),
            "usual",
            "mine: raw leakage 0.8 %: a little above that of correctly read networks (0.4 % to 0.6 %).",
        ),
        (
            summary(0.001),
            "usual",
            "mine: raw leakage 0.1 %: no more than that of correctly read networks (0.4 % to 0.6 %).",
        ),
        (summary(0.006, 50), "usual", "Only 50 positions were measured."),
        (
            summary(0.015),
            "high",
            "mine: raw leakage 1.5 %, 2 times that of correctly read networks (0.4 % to 0.6 %). If the positions",
        ),
        (
            summary(0.0269),
            "wrong",
            "mine: PROBABLY READ WRONGLY: raw leakage 2.7 %, 4 times that of correctly read networks",
        ),
        (
            summary(0.0269, castling=0.8),
            "wrong",
            "80% of it has the cause castling_path. An illegal move comes first in 7 of 1,000 positions. Run `",
        ),
        (
            opening(summary(0.010), 0.05),
            "wrong",
            "PROBABLY READ WRONGLY: raw leakage 5 % in openings, 23 times that of correctly read networks (at most",
        ),
        (opening(summary(0.010), 0.05, 10), "usual", "Mistakes in few moves, such as castling and promotions, need"),
        (
            summary(0.98),
            "wrong",
            "mine: READ WRONGLY, or untrained: raw leakage 98 %, 163 times that of correctly read networks",
        ),
        (
            summary(0.98, masked=True),
            "unknown",
            "mine: it was trained with the mask, so leakage does not say how it is read. Run",
        ),
        (
            mixed(summary(0.047), 700, 0.006),
            "usual",
            "judges the 700 positions of games, not the 300 single",
        ),
        (mixed(summary(0.006), 700, 0.047), "wrong", "mine: PROBABLY READ WRONGLY: raw leakage 4.7 %, 8 times that"),
        (
            mixed(summary(0.047), 40, 0.006),
            "unknown",
            "But only 40 of 1,000 positions come from games. Composed positions",
        ),
        (mixed(summary(0.047), 40, 0.047), "unknown", "Audit games with 200 positions or more, or run"),
        (singles(summary(0.006)), "usual", "mine: raw leakage 0.6 %: typical"),
        (singles(summary(0.047)), "unknown", "But no position comes from a game. Composed positions leak more"),
        (singles(summary(0.98)), "wrong", "mine: READ WRONGLY, or untrained: raw leakage 98 %"),
        (ModelSummary("mine", "sha256:0", False), "unknown", "mine: raw leakage was not measured"),
    ],
)
def test_assessment_words(model: ModelSummary, level: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assessment, "IN_GAMES", {"one": 0.004, "other": 0.006})
    assessed = assessment_of(model)
    assert assessed.level == level
    assert words in assessed.words
    if model.of("raw").mean:
        assert "`movemask models check mine --diagnose`" in assessed.words
