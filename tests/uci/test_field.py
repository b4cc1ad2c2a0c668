"""UCI input of other programs, and how GUIs start the engine."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from movemask.local.network import Network
from movemask.uci.engine import Engine
from movemask.uci.options import Options
from tests.ground_truth import DATA
from tests.uci.test_strength import COMMAND


@cache
def cases() -> tuple[dict[str, Any], ...]:
    """Patterns of lines: all in `expect` are written, those in `never` are not, and the last line is `last`."""
    return tuple(json.loads(line) for line in (DATA / "field" / "uci-cases.jsonl").read_text().splitlines())


def answers(network: Network, *commands: str, options: Options | None = None) -> list[str]:
    """All lines that the engine writes."""
    out = io.StringIO()
    Engine(lambda *_: network, options or Options(), out).run(commands)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("case", cases(), ids=[case["case"] for case in cases()])
def test_field_case(case: dict[str, Any], network: Network) -> None:
    # The search has a thread of its own, so its lines and the notes of later commands may change places.
    lines = answers(network, *case["send"])
    for pattern in case["expect"]:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    for pattern in case["never"]:
        assert not any(re.search(pattern, line) for line in lines), (pattern, lines)
    if "last" in case:
        assert re.fullmatch(case["last"] + ".*", lines[-1]), lines


#: What fastchess sends in its check of an engine (Disservin/fastchess, `app/src/engine/compliance.hpp`).
FASTCHESS = [
    "uci",
    "isready",
    "ucinewgame",
    "position startpos",
    "isready",
    "position fen 3r2k1/p5n1/1pq1p2p/2p3p1/2P1P1n1/1P1P2pP/PN1Q2K1/5R2 w - - 0 27",
    "isready",
    "go wtime 100",
    "go btime 100",
    "go wtime 100 winc 100 btime 100 binc 100",
    "go btime 100 binc 100 wtime 100 winc 100",
    "ucinewgame",
    "position startpos",
    "go wtime 100 btime 100",
    "position startpos moves e2e4 e7e5",
    "go wtime 100 btime 100",
]


def test_fastchess_compliance(network: Network) -> None:
    lines = answers(network, *FASTCHESS)
    assert any(line.startswith("id name ") for line in lines)
    assert any(line.startswith("id author ") for line in lines)
    assert lines.count("readyok") == 3
    for number, line in enumerate(lines):
        if line.startswith("bestmove"):
            assert re.match(r"bestmove [a-h][1-8][a-h][1-8]", line)
            assert "score" in lines[number - 1]  # the last line of information
    assert sum(line.startswith("bestmove") for line in lines) == 6
    assert not any("info string" in line for line in lines)


def test_end_of_input_ends_the_engine() -> None:
    done = subprocess.run(COMMAND, input="go infinite\n", capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1].startswith("bestmove ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("sent", "code", "words"),
    [
        ("uci\nquit\n", 0, "uciok"),
        (" uci \r\nisready\n", 0, "readyok"),
        ("help\n", 2, "Commands:"),
        ("", 2, "Commands:"),
    ],
)
def test_engine_without_arguments(sent: str, code: int, words: str) -> None:
    """Fritz starts a program without arguments."""
    command = [sys.executable, "-m", "movemask"]
    done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    if code == 0:
        assert done.stdout.splitlines()[0].startswith("id name movemask")
