"""What a reader of docs/performance.md would lose: figures that are of answers, by a command that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.load import BadAnswer, load, request
from benchmarks.servers import movemask
from movemask.settings import shipped_models
from tests.conftest import ROOT


def test_a_load_counts_answers_and_takes_nothing_else_for_one() -> None:
    with movemask(shipped_models(), "movemask-4") as server:
        found = load(
            server.port, [request("/v1/policy", b'{"moves": []}')], connections=4, seconds=60, warm_up=0, most=40
        )
        assert 40 <= len(found.seconds) == found.answered
        assert 0 < found.percentile(0) <= found.percentile(50) <= found.percentile(100) < found.total
        assert server.resident_bytes() > 50e6
        assert server.cpu_seconds() > 0
        with pytest.raises(BadAnswer, match=r"HTTP/1\.1 404 Not Found"):
            load(server.port, [request("/v1/policies", b"{}")], connections=1, seconds=60, warm_up=0)


@pytest.mark.deep
def test_the_command_writes_every_table_and_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.serving", "--seconds", "0.3", "--rounds", "1", "--positions", "1000"]
    subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, check=True)
    page = (tmp_path / "serving.md").read_text()
    for words in ("≥ 0.90", "µs of a processor", "a plain FastAPI handler", "#### Batch size", "#### Connections"):
        assert words in page
    figures = json.loads((tmp_path / "movemask-4.json").read_text())
    assert {"bare", "rounds", "peers", "max_batch", "flat"} <= set(figures)
    assert len(list(tmp_path.glob("*.svg"))) == 2
