"""benchmarks.strength: Elo from games, the report and the card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import strength
from benchmarks.strength import ANCHOR, NODES, RATINGS, Player
from movemask.network.contract import read_contract
from movemask.network.files import shipped_models


def test_known_strengths_are_recovered_within_errors() -> None:
    pairs = strength.schedule(RATINGS, NODES)
    players = sorted({player for pair in pairs for player in pair})
    draw = np.random.default_rng(5)
    known = dict(zip(players, draw.normal(0, 300, len(players)), strict=True)) | {ANCHOR: 0.0}
    scores = {}
    for first, second in pairs:
        expected = 1 / (1 + 10 ** ((known[second] - known[first]) / 400))
        drawn = 0.6 * min(expected, 1 - expected)
        chance = draw.random(400)
        won, not_lost = chance < expected - drawn / 2, chance < expected + drawn / 2
        scores[first, second] = ((won.astype(float) + not_lost) / 2).tolist()
    estimates = strength.fitted(scores, ANCHOR)
    assert estimates[ANCHOR] == (0, 0)
    off = [(estimates[player][0] - known[player]) / estimates[player][1] for player in players if player != ANCHOR]
    assert max(map(abs, off)) < 4
    assert all(error < 40 for _, error in estimates.values())


def test_most_human_player_is_chosen_for_each_elo() -> None:
    elo = {Player(nodes=1): 1700.0, Player(800, 1.0): 1300.0, ANCHOR: 1500.0, Player(2000, 1.0): 1480.0}
    elo |= {Player(2500, 1.0): 1600.0, Player(800, 0.5): 1450.0, Player(2500, 0.5): 1800.0, Player(2500, 0.25): 1790.0}
    errors = {player: elo[player] / 100 for player in elo}
    rows = [tuple(row.values()) for row in strength.rows_of(elo, errors)]
    assert rows == [(1300, 13, 800, 1), (1500, 15, 1500, 1), (1600, 16, 2500, 1), (1800, 18, 2500, 0.5)]


@pytest.mark.deep
def test_match_writes_table_report_and_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = shipped_models().glob("*.toml")
    for file in (source, source.with_suffix(".onnx")):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(strength, "RATINGS", (800, 1500))
    monkeypatch.setattr(strength, "NODES", (1,))
    arguments = ["--model", source.stem, "--models-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["strength", *arguments, "--games", "2", "--jobs", "2", "--write"])
    strength.main()
    results = json.loads((tmp_path / "out" / "strength.json").read_text())
    played = [pair for pair in results["pairs"] if "Stockfish" not in pair["players"][1]]
    assert len(played) == 7
    assert {pair["games"] for pair in results["pairs"]} == {2}
    assert all(pair["score"] in (0, 0.25, 0.5, 0.75, 1) for pair in results["pairs"])
    assert results["games"] == 2 * len(results["pairs"])
    assert (results["stockfish"] is None) == (len(played) == len(results["pairs"]))
    (anchor,) = [one for one in results["players"] if (one["rating"], one["temperature"]) == (1500, 1)]
    assert (anchor["elo"], anchor["error"]) == (1500, 0)
    assert read_contract(tmp_path / source.name).card["strength"] == results["rows"]
    text = (tmp_path / source.name).read_text()
    assert text.startswith(source.read_text().split("[[card.strength]]")[0].rstrip())
    report = (tmp_path / "out" / "strength.md").read_text()
    assert report in capsys.readouterr().out
    assert "| 1500 | 1500 ± 0 |" in report
    assert ("nodes a move" if results["stockfish"] else "Stockfish is not installed") in report
    assert all(f"| {row['elo']} | {row['rating']} | {row['temperature']:g} |" in report for row in results["rows"])


def test_unmeasurable_input_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path("docs/examples/maia-1500.toml")
    shutil.copy(Path(__file__).parent.parent / example, tmp_path)
    monkeypatch.setattr("sys.argv", ["strength", "--model", "maia-1500", "--models-dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        strength.main()
    assert "maia-1500 takes no rating of 1500" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["strength", "--model", "none", "--models-dir", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"none\.toml: cannot be read: No such file"):
        strength.main()
