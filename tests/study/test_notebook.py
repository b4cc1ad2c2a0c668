"""study.ipynb: every cell runs and prints what is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import matplotlib
import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "study"

#: Cells that take longer than a few seconds: the two studies of row maxima.
SLOW = "slow"


def cells() -> Iterator[tuple[str, str, set[str]]]:
    """The source of each code cell, the text that it printed, and its tags."""
    notebook = json.loads((FOLDER / "study.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            text = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
            yield "".join(cell["source"]), text, set(cell["metadata"].get("tags", ()))


@pytest.fixture(autouse=True)
def _without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("Agg")
    monkeypatch.chdir(FOLDER)


@pytest.mark.parametrize("repeats", [1, pytest.param(40, marks=pytest.mark.deep)])
def test_cells_print_stored_output(repeats: int, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    compared = 0
    for source, stored, tags in cells():
        if repeats < 40:
            source = source.replace("REPEATS = 40", f"REPEATS = {repeats}").replace("[::6]", "[::60]")
        exec(source.replace("plt.show()", "plt.close()"), names)
        printed = capsys.readouterr().out
        if repeats == 40 or SLOW not in tags:  # with fewer rows, a way fails later
            assert printed == stored, source
            compared += bool(stored)
    assert compared >= 10
