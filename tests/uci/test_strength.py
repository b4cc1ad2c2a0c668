"""UCI_LimitStrength and the measured strengths."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess
import chess.engine
import pytest

from benchmarks.strength import write_card
from movemask.network.files import shipped_models
from tests.parts import part_of
from tests.processes import served

COMMAND = [sys.executable, "-m", "movemask", "uci"]
ROWS = [
    {"elo": 1200, "rating": 800, "temperature": 1.0},
    {"elo": 1600, "rating": 2000, "temperature": 1.0},
    {"elo": 1800, "rating": 2200, "temperature": 0.5},
]


def copied(folder: Path, rows: Sequence[dict[str, float]]) -> Path:
    """A models folder with the shipped network, and these rows in its card."""
    shutil.copytree(shipped_models(), folder / "models")
    for contract in (folder / "models").glob("*.toml"):
        write_card(contract, rows)
    return folder / "models"


def game(engine: chess.engine.SimpleEngine, **options: Any) -> list[tuple[str, str]]:
    """Twelve moves against itself, drawn from one seed, with the probability of each."""
    board, this, moves = chess.Board(), object(), []
    for _ in range(12):
        limit = chess.engine.Limit(nodes=1)
        played = engine.play(board, limit, game=this, info=chess.engine.INFO_ALL, options={**options, "Seed": 7})
        assert played.move is not None
        board.push(played.move)
        moves.append((played.move.uci(), played.info["string"]))
    return moves


@pytest.mark.parametrize("where", part_of(["here", "service"], 2))
def test_measured_strength_sets_rating_and_temperature(tmp_path: Path, where: str) -> None:
    models = copied(tmp_path, ROWS)
    if where == "here":
        _plays_by_the_table([*COMMAND, "--models-dir", str(models)])
    else:
        with served(models) as (_, port):
            _plays_by_the_table([*COMMAND, "--url", f"http://127.0.0.1:{port}"])


def _plays_by_the_table(command: list[str]) -> None:
    with chess.engine.SimpleEngine.popen_uci(command, timeout=60) as engine:
        offered = engine.options["UCI_Elo"]
        assert (offered.min, offered.max, offered.default) == (1200, 1800, 1500)
        between = {1200: (800, 1), 1400: (1400, 1), 1600: (2000, 1), 1700: (2100, 0.75), 1800: (2200, 0.5)}
        games = []
        for elo, (rating, temperature) in between.items():
            limited = game(engine, UCI_LimitStrength=True, UCI_Elo=elo, SelfElo=600, Temperature="0")
            free = game(engine, UCI_LimitStrength=False, SelfElo=rating, Temperature=str(temperature))
            assert limited == free, elo
            games.append(tuple(limited))
        assert len(set(games)) == len(games)
        # As measured: both players are told the same rating, whoever the opponent is.
        engine.send_opponent_information(opponent=chess.engine.Opponent("A", None, 2500, is_engine=False))
        assert tuple(game(engine, UCI_LimitStrength=True, UCI_Elo=1800)) == games[-1]


def test_strength_outside_the_table(tmp_path: Path) -> None:
    command = [*COMMAND, "--models-dir", str(copied(tmp_path, ROWS))]

    def answer(*options: str) -> list[str]:
        sent = "".join(f"setoption name {option}\n" for option in ("Seed value 3", *options)) + "go\n"
        return subprocess.run(command, input=sent, capture_output=True, text=True, check=True).stdout.splitlines()

    nearest = answer("UCI_LimitStrength value true", "UCI_Elo value 1800")
    beyond = answer("UCI_LimitStrength value true", "UCI_Elo value 3000")
    assert not any("info string" in line for line in nearest)
    assert "plays from 1200 to 1800 Elo: 3000 as the nearest" in beyond[0]
    assert beyond[-1] == nearest[-1]
