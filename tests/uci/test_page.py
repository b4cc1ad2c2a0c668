"""The commands of docs/uci.md and their output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from movemask.cli.main import main
from tests.conftest import ROOT
from tests.ground_truth import DATA

PAGE = (ROOT / "docs" / "uci.md").read_text()

NUMBER = re.compile(r"\d+\.\d+|\d+")


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def test_documented_eval_output() -> None:
    blocks = re.findall(r"```(?:sh|)\n(.*?)```", PAGE, re.S)
    place = next(place for place, block in enumerate(blocks) if block.startswith("printf 'position"))
    command, documented = blocks[place : place + 2]
    sent = re.fullmatch(r"printf '(.*)' \| movemask (.*) \| head -(\d)\n", command)
    assert sent
    text = sent[1].replace("\\n", "\n")
    arguments = [sys.executable, "-m", "movemask", *sent[2].split()]
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()[: int(sent[3])]
    assert len(lines) == len(documented.splitlines())
    for line, expected in zip(lines, documented.splitlines(), strict=True):
        assert NUMBER.sub("", line) == NUMBER.sub("", expected)
        assert numbers(line) == pytest.approx(numbers(expected), rel=0.1, abs=0.2)  # 8-bit integers round differently


def test_documented_analysis_output() -> None:
    documented = re.search(r"^info .*$", PAGE, re.M)
    assert documented
    sent = "setoption name UCI_ShowWDL value true\nsetoption name MultiPV value 4\nposition startpos moves e2e4 e7e5\n"
    command = [sys.executable, "-m", "movemask", "uci", "--elo", "1500"]
    done = subprocess.run(command, input=f"{sent}go infinite\n", capture_output=True, text=True, check=True)
    line, timed = done.stdout.splitlines()[0], re.compile(r" nps \d+ time \d+ ")
    assert NUMBER.sub("", line) == NUMBER.sub("", documented[0])
    written, expected = (numbers(timed.sub(" ", text)) for text in (line, documented[0]))
    assert written == pytest.approx(expected, rel=0.1, abs=10)


def test_documented_mistake_figures(tmp_path: Path) -> None:
    documented = re.search(
        r"`(blunder: cost .*?)`\s\(11\. Nbd2 of `movemask annotate tests/data/evaluated.pgn`\)", PAGE
    )
    assert documented
    out = tmp_path / "annotated.pgn"
    done = CliRunner().invoke(main, ["annotate", str(DATA / "evaluated.pgn"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    after = " ".join(out.read_text().split()).partition("11. Nbd2 $4 ")[2]
    written = re.search(r"blunder: cost .*? at 2400", after)
    assert written
    assert numbers(written[0]) == pytest.approx(numbers(documented[1]), rel=0.05, abs=0.2)
