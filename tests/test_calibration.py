"""What a user would lose: a temperature fitted to their games, in their contract, with the rest of it left alone."""

from __future__ import annotations

import io
from pathlib import Path

import chess
import chess.pgn
import numpy as np
import pytest
from click.testing import CliRunner, Result

from service.calibration import fitted
from service.cli import main
from service.encoding.pgn import Game, read_games
from service.encoding.position import Position
from service.errors import InvalidPgn
from service.inference.contract import read_contract
from service.inference.model import Model
from service.inference.registry import load_entry
from service.policy import Rule, legal_of, policies
from tests.networks import write_fake

TRUTH = 1.8


def drawn_games(model: Model, games: int, plies: int) -> str:
    """Games whose moves are drawn from the model's own policy at temperature TRUTH."""
    out = []
    for seed in range(games):
        board = chess.Board()
        for ply in range(plies):
            batch = [model.encode(Position(board.copy()))]
            if not batch[0].moves:
                break
            policy = policies(batch, legal_of(batch, model.evaluate(batch).logits), [Rule(temperature=TRUTH)])[0]
            board.push(policy.moves[policy.sample(1000 * seed + ply)])
        out.append(str(chess.pgn.Game.from_board(board)))
    return "\n\n".join(out)


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    file = write_fake(tmp_path / "m", "net")
    file.write_text("# a comment that stays\n" + file.read_text())
    return file


@pytest.fixture
def model(contract: Path) -> Model:
    found = load_entry(contract, 1).model
    assert found is not None
    return found


@pytest.fixture
def games(model: Model, tmp_path: Path) -> Path:
    file = tmp_path / "games.pgn"
    file.write_text(drawn_games(model, 30, 60) + '\n\n[Event "bad"]\n\n1. e4 Ke3 *\n')
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["calibrate", *arguments], catch_exceptions=False)


def test_the_temperature_that_moves_were_drawn_at_is_found_and_written(contract: Path, games: Path) -> None:
    result = run(str(games), "--model", "net", "--models-dir", str(contract.parent))
    assert result.exit_code == 0
    with open(games) as stream:
        read = [game for game in read_games(stream) if isinstance(game, Game)]
    positions = sum(max(0, len(game.plies) - 8) for game in read)
    assert f"from {positions} moves of 30 games" in result.output
    assert "left out: pgn: game 31: illegal san: 'Ke3'" in result.output
    found = read_contract(contract).calibration
    assert found is not None
    assert found.temperature == pytest.approx(TRUTH, rel=0.1)
    assert found.positions == positions
    assert found.source == "games.pgn"
    assert found.cross_entropy_after < found.cross_entropy_before
    assert contract.read_text().startswith("# a comment that stays\n")
    again = run(str(games), "--models-dir", str(contract.parent), "--first-ply", "0", "--limit", "500")
    assert "from 500 moves" in again.output
    assert contract.read_text().count("[calibration]") == 1
    assert not list(contract.parent.glob("*.part"))


def test_a_dry_run_writes_nothing(contract: Path, games: Path) -> None:
    before = contract.read_bytes()
    assert run(str(games), "--models-dir", str(contract.parent), "--dry-run").exit_code == 0
    assert contract.read_bytes() == before


def test_nothing_to_fit_to_is_said(model: Model, contract: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidPgn, match="no position to fit to; pgn: there is no game in it"):
        fitted(model, io.StringIO(""))
    (tmp_path / "empty.pgn").write_text("")
    result = run(str(tmp_path / "empty.pgn"), "--models-dir", str(contract.parent))
    assert result.exit_code == 1
    assert "Error: games: no position to fit to" in result.output


def test_progress_counts_positions(model: Model, games: Path) -> None:
    seen: list[int] = []
    with open(games) as stream:
        found = fitted(model, stream, limit=600, progress=seen.append)
    assert seen == [256, 512, 600]
    assert np.isfinite(found.calibration.temperature)
