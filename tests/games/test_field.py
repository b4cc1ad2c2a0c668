"""Annotated files of other programs: nothing in them is lost."""

from __future__ import annotations

import asyncio
import io

import chess.pgn

from movemask.board.pgn import Game, read_games, read_trees
from movemask.board.split import escaped
from movemask.errors import MovemaskError
from movemask.evaluate import Direct
from movemask.games.annotation import Annotated, annotated
from movemask.games.reports import GameReport
from tests.field import CASES, Case, outline
from tests.networks import fake_model


async def written(own: Direct, text: str) -> list[Annotated]:
    return [game async for game in annotated(own, read_trees(text))]


def test_annotated_files_keep_everything() -> None:
    own = Direct(fake_model())
    for case in CASES:
        try:
            check(case, own)
        except AssertionError as error:
            error.add_note(f"in {case.path.name}")
            raise


def check(case: Case, own: Direct) -> None:
    games = asyncio.run(written(own, case.text))
    text = "".join(f"{game}\n\n" for game in games)
    assert "\N{REPLACEMENT CHARACTER}" not in text
    assert [part for part in case.kept if part not in " ".join(text.split())] == []
    judged = [game for game in games if game.report is not None]
    assert [isinstance(game.report, MovemaskError) for game in judged] == ["error" in game for game in case.games]
    again = [game for game in read_games(text) if isinstance(game, Game)]
    good = [{name: value for name, value in game.items() if name != "notes"} for game in case.good]
    assert [outline(game, expected) for game, expected in zip(again, good, strict=True)] == good
    if "the kings tell the result" not in text:  # moves that are left out are named once
        assert "".join(f"{game}\n\n" for game in asyncio.run(written(own, text))) == text
    for game in judged:
        if isinstance(game.report, GameReport) and not game.report.game.repairs:  # which python-chess does not make
            by_python_chess = chess.pgn.read_game(io.StringIO(str(game)))
            assert by_python_chess is not None
            assert list(by_python_chess.mainline_moves()) == [ply.played for ply in game.report.game.plies]
            for name, value in by_python_chess.headers.items():
                assert value == escaped(game.report.game.headers.get(name, value)), name
