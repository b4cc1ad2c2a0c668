"""Games of other programs' PGN files: moves, players, ratings and errors."""

from __future__ import annotations

import pytest

from movemask.board.pgn import read_games, read_trees
from tests.field import CASES, FIELD, NAMES, Case, outline


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_games_of_other_programs_are_read(case: Case) -> None:
    games = list(read_games(case.text))
    assert len(games) == len(case.games), games
    for game, expected in zip(games, case.games, strict=True):
        assert outline(game, expected) == expected
    trees = [parsed.game for parsed in read_trees(case.text) if parsed.game is not None]
    assert [outline(game, expected) for game, expected in zip(trees, case.games, strict=True)] == case.games


def test_cases_name_every_file() -> None:
    assert {case.path.name for case in CASES} == {path.name for path in FIELD.glob("pgn-*.pgn")}
