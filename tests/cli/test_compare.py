"""What a researcher who audits on many machines would lose: proof that the figures are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from movemask.cli.main import main

SUMMARY: dict[str, Any] = {
    "command": "movemask audit x.pgn",
    "files": ["x.pgn"],
    "left_out": {},
    "models": {"net": {"positions": 12, "kinds": {"raw": {"mean": 0.25, "max": 0.5}}}},
}


def compare(folder: Path, *summaries: dict[str, Any]) -> Result:
    for number, summary in enumerate(summaries):
        (folder / str(number)).mkdir()
        (folder / str(number) / "summary.json").write_text(json.dumps(summary))
    return CliRunner().invoke(main, ["compare", *(str(folder / str(number)) for number in range(len(summaries)))])


def test_the_same_figures_are_equal_whatever_the_command_was(tmp_path: Path) -> None:
    result = compare(tmp_path, SUMMARY, {**SUMMARY, "command": "movemask audit x.pgn --ray auto"}, SUMMARY)
    assert (result.exit_code, result.output) == (0, "3 equal summaries; net: 12 positions\n")


def test_results_in_object_storage_are_compared_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "summary.json").write_text(json.dumps(SUMMARY))
    found = CliRunner().invoke(main, ["compare", str(tmp_path / "a"), f"file://{tmp_path}/a"])
    assert (found.exit_code, found.output) == (0, "2 equal summaries; net: 12 positions\n")
    found = CliRunner().invoke(main, ["compare", str(tmp_path / "a"), f"file://{tmp_path}/b"])
    assert found.exit_code == 1
    assert f"file://{tmp_path}/b/summary.json: No such file" in found.output


def test_each_figure_that_differs_in_the_last_digit_is_named(tmp_path: Path) -> None:
    other = json.loads(json.dumps(SUMMARY))
    other["models"]["net"]["kinds"]["raw"]["mean"] = 0.25000000000000006
    result = compare(tmp_path, SUMMARY, other)
    assert result.exit_code == 3
    assert result.output.startswith("models.net.kinds.raw.mean: 0.25 in ")


def test_a_network_that_is_only_in_one_is_said_in_one_short_line(tmp_path: Path) -> None:
    other = {**SUMMARY, "models": {**SUMMARY["models"], "more": SUMMARY["models"]["net"]}}
    result = compare(tmp_path, SUMMARY, other)
    assert (result.exit_code, result.output) == (3, f"more: only in {tmp_path / '1'}\n")


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("[]", "not the summary"), ("{", "not the summary")])
def test_what_is_no_summary_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "summary.json").write_text(text)
    result = CliRunner().invoke(main, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert result.exit_code == 1
    assert f"{tmp_path / 'a' / 'summary.json'}: {why}" in result.output
