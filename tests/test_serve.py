"""What an operator would lose: a process that serves many at once, stops in order and keeps its audit. For real."""

from __future__ import annotations

import concurrent.futures
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import chess
import pytest

from tests.conftest import ROOT
from tests.networks import ONNX_TOML, write_onnx
from tests.processes import call, served, stopped

CLIENTS = 64
SECONDS = 10.0


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "net.toml").write_text(ONNX_TOML)
    write_onnx(folder / "net.onnx")
    return folder


def test_64_clients_at_once_get_right_answers_in_batches_larger_than_one(models: Path) -> None:
    rng = random.Random(0)
    boards = []
    for _ in range(200):
        board = chess.Board()
        for _ in range(rng.randrange(60)):
            moves = list(board.legal_moves)
            if moves:
                board.push(rng.choice(moves))
        boards.append(board)
    fens = [board.fen(en_passant="fen") for board in boards]
    with served(models) as (process, port):
        results = call(port, "/v1/policy/batch", {"positions": [{"fen": fen} for fen in fens]})["results"]
        expected = dict(zip(fens, results, strict=True))
        for board, fen in zip(boards, fens, strict=True):
            assert {m["uci"] for m in expected[fen]["moves"]} == {m.uci() for m in board.legal_moves}
        until = time.monotonic() + SECONDS

        def client(seed: int) -> int:
            choose = random.Random(seed)
            count = 0
            while time.monotonic() < until:
                fen = choose.choice(fens)
                answer = call(port, "/v1/policy", {"fen": fen})
                assert answer["fen"] == fen
                wanted = {move["uci"]: move["probability"] for move in expected[fen]["moves"]}
                found = {move["uci"]: move["probability"] for move in answer["moves"]}
                assert found == pytest.approx(wanted, abs=1e-5)
                assert not found or abs(sum(found.values()) - 1) < 1e-12
                count += 1
            return count

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            answered = sum(pool.map(client, range(CLIENTS)))
        assert answered >= CLIENTS
        metrics = call(port, "/metrics")
        ones = next(line for line in metrics.splitlines() if line.startswith('movemask_batch_size_bucket{le="1.0"'))
        runs = next(line for line in metrics.splitlines() if line.startswith("movemask_batches_total{"))
        assert float(ones.split()[-1]) < float(runs.split()[-1]), "no batch was larger than one"
        assert stopped(process) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_exits_0_a_restart_keeps_the_audit_and_workers_share_it(models: Path, workers: str) -> None:
    for total in (10, 20):
        with served(models, "--workers", workers) as (process, port):
            for _ in range(10):
                call(port, "/v1/policy", {})
            counted = [
                float(line.split()[-1])
                for line in call(port, "/metrics").splitlines()
                if line.startswith("movemask_positions_total{")
            ]
            assert sum(counted) == 10
            assert stopped(process) == 0
        with served(models, "--workers", workers) as (process, port):
            assert call(port, "/v1/leakage")["models"]["net"]["positions"] == total
            assert stopped(process) == 0


def test_a_kill_loses_nothing_that_was_flushed_and_the_file_is_intact(models: Path) -> None:
    with served(models) as (process, port):
        for _ in range(5):
            call(port, "/v1/policy", {})
        while call(port, "/v1/leakage")["freshness"]["waiting"]:  # a figure is as fresh as the last write, and says so
            pass
        assert call(port, "/v1/leakage")["models"]["net"]["positions"] == 5
        process.kill()
        process.wait()
    with served(models) as (process, port):
        assert call(port, "/v1/leakage")["models"]["net"]["positions"] == 5


def test_a_port_in_use_is_said_and_the_exit_is_not_0(models: Path) -> None:
    with served(models) as (_, port):
        command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--models-dir", str(models)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        second = subprocess.run(command, cwd=models, env=environment, capture_output=True, timeout=60, check=False)
    assert second.returncode != 0
    assert b"address already in use" in second.stderr + second.stdout
