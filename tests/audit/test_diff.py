"""`movemask audit-diff`: differences beyond chance, by position and by played moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.audit.audits import GAMES, audited, fens
from tests.networks import write_fake
from tests.processes import run as run_command


def compared(*arguments: object) -> Result:
    result = run_command("audit-diff", *arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Audits of one network, read rightly and with a mistake in its contract."""
    (tmp_path / "x.fen").write_text("\n".join(fens(40)))
    for name in ("a", "b"):
        file = write_fake(tmp_path / name, "net")
        if name == "b":
            text = file.read_text().replace("[contract]", '[contract]\nvariations = ["slots_rotated"]')
            file.write_text(text)
        options = ("--models-dir", tmp_path / name, "--kinds", "raw,multiplied", "--out", tmp_path / f"out-{name}")
        audited(tmp_path / "x.fen", *options)
    return tmp_path / "out-a", tmp_path / "out-b"


def test_diff_of_equal_audits_is_empty(two: tuple[Path, Path]) -> None:
    result = compared(two[0], two[0])
    assert "net: the same at all 40 positions that are in both\n" in result.output
    assert "raw mean" in result.output
    assert "best legal move differs at 0 of " in result.output


def test_diff_counts_repeated_positions_once(tmp_path: Path) -> None:
    positions = fens(5)
    (tmp_path / "x.fen").write_text("\n".join(positions + positions[:3]))
    write_fake(tmp_path / "m", "net")
    audited(tmp_path / "x.fen", "--models-dir", tmp_path / "m", "--out", tmp_path / "out")
    result = compared(tmp_path / "out", tmp_path / "out")
    assert result.output.startswith("net: the same at all 5 positions that are in both (repeated ones count once)\n")


def test_diff_compares_position_by_position(two: tuple[Path, Path]) -> None:
    result = compared(*two)
    assert " positions that are in both, " in result.output
    assert "cause " in result.output
    (network,) = json.loads(compared(*two, "--json").output)["networks"]
    assert network["first"] == network["second"] == "net"
    paired, figures = network["paired"], {(kind, name): (a, b) for kind, name, a, b in network["figures"]}
    before, after = figures["raw", "mean"]
    assert paired["positions"] == 40
    assert paired["difference"] == pytest.approx(after - before)
    assert 0 < paired["flipped"] < 40
    assert network["z"] == pytest.approx(paired["difference"] / paired["error"])
    changes = [abs(b - a) for _, a, b in paired["most"]]
    assert changes == sorted(changes, reverse=True)
    assert len(changes) == 5


def test_diff_without_tables_compares_figures_and_warns(two: tuple[Path, Path]) -> None:
    (two[1] / "positions.parquet").unlink()
    result = compared(two[0] / "summary.json", two[1])
    assert "it is not known whether the positions are the same" in result.output


def test_diff_names_folder_without_audit(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json").write_text("[]")
    for where, words in (
        ("nowhere", "nowhere: no such file or folder; give the folder that `movemask audit --out` wrote"),
        ("empty", "empty: no finished audit in it"),
        ("x.json", "x.json: not the summary of an audit"),
    ):
        result = run_command("audit-diff", two[0], tmp_path / where)
        assert result.exit_code == 1
        assert words in result.output


def test_diff_compares_networks_by_played_moves(tmp_path: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    played = []
    for name in ("first", "second"):
        write_fake(tmp_path / name, name, planes="maia2-18" if name == "first" else "lc0-112")
        out = tmp_path / f"out-{name}"
        audited(tmp_path / "x.pgn", "--models-dir", tmp_path / name, "--kinds", "raw", "--out", out, "--jobs", 1)
        played.append(json.loads((out / "summary.json").read_text())["models"][name]["played"])
    arguments = tmp_path / "out-first", tmp_path / "out-second"
    (network,) = json.loads(compared(*arguments, "--json").output)["networks"]
    figures = {(kind, name): (a, b) for kind, name, a, b in network["figures"]}
    for name in ("cross_entropy", "top1"):
        assert figures["played", name] == tuple(one[name] for one in played)
    paired = network["paired"]
    assert 0 < paired["moves"] == paired["positions"]
    assert paired["surprise_error"] > 0
    output = compared(*arguments).output
    assert (
        f"cross-entropy of the moves played at {paired['moves']} positions in both: {paired['surprise']:+.3g} ±"
        in output
    )
    assert "played top1" in output or "played cross_entropy" in output
