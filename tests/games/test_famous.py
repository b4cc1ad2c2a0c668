"""Reviews of well-known games: traps are blunders, and sound sacrifices are not.

A real engine judges. Without Stockfish the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
from contextlib import aclosing

import pytest

from movemask.board.pgn import Game, read_games
from movemask.games.costs import Costs
from movemask.games.engine import Engine
from movemask.games.judging import judged

STOCKFISH = shutil.which("stockfish", path=f"{os.environ['PATH']}:/usr/games")

OPERA = """1. e4 e5 2. Nf3 d6 3. d4 Bg4 4. dxe5 Bxf3 5. Qxf3 dxe5 6. Bc4 Nf6 7. Qb3 Qe7 8. Nc3 c6 9. Bg5 b5 10. Nxb5
cxb5 11. Bxb5+ Nbd7 12. O-O-O Rd8 13. Rxd7 Rxd7 14. Rd1 Qe6 15. Bxd7+ Nxd7 16. Qb8+ Nxb8 17. Rd8# 1-0"""
IMMORTAL = """1. e4 e5 2. f4 exf4 3. Bc4 Qh4+ 4. Kf1 b5 5. Bxb5 Nf6 6. Nf3 Qh6 7. d3 Nh5 8. Nh4 Qg5 9. Nf5 c6 10. g4 Nf6
11. Rg1 cxb5 12. h4 Qg6 13. h5 Qg5 14. Qf3 Ng8 15. Bxf4 Qf6 16. Nc3 Bc5 17. Nd5 Qxb2 18. Bd6 Bxg1 19. e5 Qxa1+
20. Ke2 Na6 21. Nxg7+ Kd8 22. Qf6+ Nxf6 23. Be7# 1-0"""
LEGAL = "1. e4 e5 2. Nf3 d6 3. Bc4 Bg4 4. Nc3 g6 5. Nxe5 Bxd1 6. Bxf7+ Ke7 7. Nd5# 1-0"
ELEPHANT = "1. d4 d5 2. c4 e6 3. Nc3 Nf6 4. Bg5 Nbd7 5. cxd5 exd5 6. Nxd5 Nxd5 7. Bxd8 Bb4+ 8. Qd2 Kxd8 0-1"
NOAH = """1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 d6 5. d4 b5 6. Bb3 Nxd4 7. Nxd4 exd4 8. Qxd4 c5 9. Qd5 Be6 10. Qc6+ Bd7
11. Qd5 c4 0-1"""


@pytest.mark.anyio
@pytest.mark.skipif(STOCKFISH is None, reason="Stockfish is not installed (Debian: apt-get install stockfish)")
@pytest.mark.parametrize(
    ("pgn", "blunders", "right"),
    [
        pytest.param(OPERA, [], [31, 33], id="the Opera game: 16. Qb8+"),
        pytest.param(IMMORTAL, [40], [41, 43, 45], id="the Immortal game: 20... Na6, 21. Nxg7+ and 22. Qf6+"),
        pytest.param(LEGAL, [10], [9, 11, 13], id="Légal's mate: 5. Nxe5 Bxd1 6. Bxf7+"),
        pytest.param(ELEPHANT, [11], [12, 14, 16], id="the Elephant trap: 6. Nxd5 Nxd5"),
        pytest.param(NOAH, [15], [16, 18], id="Noah's ark: 8. Qxd4 c5"),
    ],
)
async def test_trap_is_a_blunder_and_refutation_is_not(pgn: str, blunders: list[int], right: list[int]) -> None:
    """The moves by their number from 1."""
    (game,) = read_games(pgn)
    assert isinstance(game, Game)
    costs = Costs.of(game)
    async with aclosing(Engine(STOCKFISH)) as engine:
        async for look in judged(engine, {0: costs}):
            costs = look.costs
    marks = {ply: costs[ply - 1].mark for ply in blunders + right}
    assert marks == {**dict.fromkeys(blunders, "blunder"), **dict.fromkeys(right)}
    for ply in blunders:
        assert costs[ply - 1].line[0] != game.plies[ply - 1].played
