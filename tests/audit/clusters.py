"""Audits on a cluster, and the same on one machine, run and compared."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ground_truth import random_game
from tests.processes import environment

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'movemask[ray]'")


def game(number: int) -> str:
    """Random moves, the same for a number."""
    line = chess.Board().variation_san(random_game(number, 10 + number % 50))
    return f'[Event "{number}"]\n[WhiteElo "{1000 + number}"]\n[BlackElo "1500"]\n\n{line} *\n\n'


def done(folder: Path, arguments: Sequence[str], code: int = 0) -> str:
    """What a command writes on stdout and stderr."""
    process = subprocess.run(arguments, cwd=folder, env=environment(), capture_output=True, text=True)
    assert process.returncode == code, process.stdout + process.stderr
    return process.stdout + process.stderr


def compared(folder: Path, *outs: str) -> None:
    """Every figure and every row is the same."""
    first, *others = outs
    assert table(folder / first).num_rows
    for other in others:
        assert summary(folder / other) == summary(folder / first)
        assert table(folder / other).equals(table(folder / first))


def summary(out: Path) -> list[str]:
    """The lines of a summary but for the command, as `diff` compares them."""
    lines = (out / "summary.json").read_text().splitlines()
    return [line for line in lines if not line.startswith(' "command"')]


def table(out: Path) -> pa.Table:
    return pq.read_table(out / "positions.parquet")
