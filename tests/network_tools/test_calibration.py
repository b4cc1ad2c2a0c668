"""`movemask calibrate`: the fit, refusals, and what is written."""

from __future__ import annotations

import gzip
import io
import shutil
from pathlib import Path

import chess
import chess.pgn
import numpy as np
import pytest
import zstandard

from movemask.board.moves import moves_of
from movemask.board.pgn import Game, read_games
from movemask.board.position import Position
from movemask.errors import InvalidPgn
from movemask.evaluate import evaluate_positions
from movemask.network.contract import read_contract
from movemask.network.files import ModelFolders
from movemask.network.model import Model
from movemask.network.registry import load_entry, load_registry
from movemask.network_tools.calibration import MINIMUM_MOVES, Fitted, fitted
from movemask.policy.normalisation import Normalisation
from movemask.policy.temperature import TemperatureFit
from tests.conftest import ROOT
from tests.networks import write_fake
from tests.processes import run

TRUTH = 1.8


def drawn_games(model: Model, games: int, plies: int) -> str:
    """Games whose moves are drawn from the model's own policy at temperature TRUTH."""
    boards, rule = [chess.Board() for _ in range(games)], Normalisation(temperature=TRUTH)
    for ply in range(plies):
        going = [(seed, board) for seed, board in enumerate(boards) if any(board.legal_moves)]
        positions = [Position(board.copy()) for _, board in going]
        policies = evaluate_positions(model, positions, [None] * len(going), rule).policies
        moves = moves_of(policies.codes)
        for row, (seed, board) in enumerate(going):
            board.push(moves[policies.indptr[row] + policies.sample(row, TRUTH, 1000 * seed + ply)])
    return "\n\n".join(str(chess.pgn.Game.from_board(board)) for board in boards)


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    file = write_fake(tmp_path / "m", "net")
    file.write_text("# a comment that stays\n" + file.read_text())
    return file


@pytest.fixture
def model(contract: Path) -> Model:
    loaded = load_entry(contract, 1).model
    assert loaded is not None
    return loaded


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Thirty games of the fake, which plays the same wherever it lies, and one that cannot be played through."""
    loaded = load_entry(write_fake(tmp_path_factory.mktemp("m"), "net"), 1).model
    assert loaded is not None
    return drawn_games(loaded, 30, 60) + '\n\n[Event "bad"]\n\n1. e4 Ke3 *\n'


@pytest.fixture
def games(played: str, tmp_path: Path) -> Path:
    file = tmp_path / "games.pgn"
    file.write_text(played)
    return file


def test_fit_finds_the_temperature_of_drawn_moves(contract: Path, games: Path) -> None:
    result = run("calibrate", str(games), "--model", "net", "--models-dir", str(contract.parent))
    assert result.exit_code == 0
    with open(games) as stream:
        read = [game for game in read_games(stream) if isinstance(game, Game)]
    positions = sum(max(0, len(game.plies) - 8) for game in read)
    assert f"from {positions} moves of 30 games; 1 games left out" in result.output
    assert "left out: pgn: game 31: 'Ke3' is not legal in" in result.output
    calibration = read_contract(contract).calibration
    assert calibration is not None
    assert calibration.temperature == pytest.approx(TRUTH, rel=0.1)
    assert calibration.standard_error is not None
    assert abs(calibration.temperature - TRUTH) < 4 * calibration.standard_error
    assert f"temperature {calibration.temperature:.4f} ± {calibration.standard_error:.4f}" in result.output
    assert calibration.positions == positions
    assert calibration.source == "games.pgn"
    assert calibration.cross_entropy_after < calibration.cross_entropy_before
    assert contract.read_text().startswith("# a comment that stays\n")
    again = run("calibrate", str(games), "--models-dir", str(contract.parent), "--first-ply", "0", "--limit", "500")
    assert "from 500 moves" in again.output
    assert contract.read_text().count("[calibration]") == 1
    assert not list(contract.parent.glob("*.part"))


def test_too_few_moves_write_nothing(contract: Path, games: Path) -> None:
    before = contract.read_bytes()
    result = run("calibrate", str(games), "--models-dir", str(contract.parent), "--limit", str(MINIMUM_MOVES - 1))
    assert result.exit_code == 1
    assert " ± " in result.output
    assert result.output.splitlines()[-1] == (
        "Error: net: the fit is refused: 499 moves are too few, at least 500 are needed; give more games"
    )
    assert contract.read_bytes() == before


def test_uncertain_fit_is_refused() -> None:
    def refusal(temperature: float, error: float, at_bound: bool = False) -> str | None:
        return Fitted(TemperatureFit(temperature, error, 2.0, 1.9, at_bound), 100, 5000, ()).refusal

    assert "the fit ended at 0.05, a bound of the search (0.05 to 20)" in (refusal(0.05, 0.001, at_bound=True) or "")
    assert refusal(1.2, 0.11) is None
    assert refusal(1.2, 0.13) == "the standard error is above 10% of the temperature; give more games"
    assert refusal(1.2, np.inf) is not None


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_games_and_dry_run(contract: Path, games: Path, ending: str) -> None:
    before = contract.read_bytes()
    packed = games.with_suffix(f".pgn.{ending}")
    raw = games.read_bytes()
    packed.write_bytes(gzip.compress(raw) if ending == "gz" else zstandard.compress(raw))
    options = ("--models-dir", str(contract.parent), "--limit", "500", "--dry-run")
    plain = run("calibrate", str(games), *options)
    assert plain.exit_code == 0
    assert run("calibrate", str(packed), *options).output == plain.output
    piped = run("calibrate", "-", *options, input=packed.read_bytes())
    assert piped.output == plain.output
    assert contract.read_bytes() == before


def test_shipped_model_is_calibrated_as_a_copy(own_models: Path, tmp_path: Path) -> None:
    games = tmp_path / "games.pgn"
    games.write_text(drawn_games(load_registry(ModelFolders.chosen(), None, 1).get(None), 20, 40))
    before = {file.name: file.read_bytes() for file in (ROOT / "models").glob("*.toml")}
    result = run("calibrate", str(games))
    try:
        assert result.exit_code == 0, result.output
        assert f"copied to {own_models}" in result.output
        (name,) = [file.stem for file in own_models.glob("*.toml")]
        folders = ModelFolders.chosen()
        assert name in folders.preferred
        registry = load_registry(folders, None, 1)
        assert registry.default == name
        assert registry.get(name).contract.calibration is not None
        assert {file.name: file.read_bytes() for file in (ROOT / "models").glob("*.toml")} == before
    finally:
        shutil.rmtree(own_models, ignore_errors=True)


def test_shipped_models_are_not_written(games: Path, tmp_path: Path) -> None:
    folder = ("--models-dir", str(ROOT / "service" / "movemask" / "shipped_models"))
    before = {file.name: file.stat().st_mtime_ns for file in (ROOT / "models").iterdir()}
    (tmp_path / "net.onnx").write_bytes(b"")
    for command in (
        ("calibrate", str(games)),
        *(("models", how, str(tmp_path / "net.onnx")) for how in ("import", "add")),
    ):
        result = run(*command, *folder)
        assert result.exit_code == 1
        (line,) = result.output.splitlines()
        assert "the shipped models are never changed; name another folder" in line
    assert {file.name: file.stat().st_mtime_ns for file in (ROOT / "models").iterdir()} == before


def test_nothing_to_fit_raises(model: Model, contract: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidPgn, match="no positions to fit to; 1 games end within the 8 plies that are left out"):
        fitted(model, io.StringIO("1. e4 e5 2. Nf3 *"), first_ply=8)
    (tmp_path / "empty.pgn").write_text("")
    result = run("calibrate", str(tmp_path / "empty.pgn"), "--models-dir", str(contract.parent))
    assert result.exit_code == 1
    assert "Error: games: no positions to fit to" in result.output
