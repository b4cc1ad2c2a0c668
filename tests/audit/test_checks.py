"""`movemask audit --fail-above`: when it fails, and its message."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from movemask.audit.summary import Threshold
from movemask.errors import BulkError
from tests.audit.audits import audited, fens, run, summarised, table_of
from tests.networks import write_fake


def test_fail_above_with_few_positions_fails(tmp_path: Path, models: Path) -> None:
    """Fourteen positions, one of them bad: the highest is their p95, p99 and p99.9."""
    (tmp_path / "x.fen").write_text("\n".join(fens(14)[:14]))
    options = ("--models-dir", models, "--model", "net")
    audited(tmp_path / "x.fen", *options, "--out", tmp_path / "out")
    kinds = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["kinds"]
    raws = sorted(pq.read_table(tmp_path / "out" / "positions.parquet")["raw"].to_pylist())
    assert kinds["raw"]["p99"] == kinds["raw"]["p95"] == kinds["raw"]["max"] == raws[-1]
    assert raws[6] <= kinds["raw"]["p50"] <= 1.02 * raws[6]  # quantiles are at most 2 % too high
    between = (raws[-1] + raws[-2]) / 2
    statistics = ("p95", "p99", "p999", "max")
    limits = [part for name in statistics for part in ("--fail-above", f"raw.{name}={between!r}")]
    result = run(tmp_path / "x.fen", *options, "--out", tmp_path / "checked", *limits)
    assert result.exit_code == 3, result.output
    assert all(f"raw.{name}" in result.output for name in statistics)


def test_fail_above_with_unmeasured_figure_fails(tmp_path: Path) -> None:
    write_fake(tmp_path / "m", planes="fen-77", vocabulary="uci-1968")  # not mirrored: nothing can be unmirrored
    (tmp_path / "x.fen").write_text("\n".join(fens(5)))
    options = ("--models-dir", tmp_path / "m", "--out", tmp_path / "out")
    result = run(tmp_path / "x.fen", *options, "--fail-above", "unmirrored.max=1")
    assert result.exit_code == 3
    assert "fake: unmirrored.max could not be measured" in result.output


def test_fail_above_with_partly_measured_figure_fails(tmp_path: Path) -> None:
    """What could not be measured may be what leaks most: a mean or maximum of the rest says nothing of it."""
    table_of(tmp_path / "t.parquet", {"whole": [0.1, 0.2], "part": [0.1, None]}, [20])
    whole, part = summarised(tmp_path / "t.parquet")
    for text in ("raw.max=0.5", "raw.mean=0.5", "raw.p50=0.5", "raw.flips=5", "raw.mean_kl=5"):
        threshold = Threshold.read(text)
        assert (threshold.exceeded(whole), threshold.exceeded(part)) == (False, True), text


def test_fail_above_with_infinite_divergences_fails(tmp_path: Path, models: Path) -> None:
    """Rounding to four places gives most moves nothing at all in a position with a clear best move."""
    (tmp_path / "x.fen").write_text("\n".join(fens(20)))
    options = ("--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    result = run(tmp_path / "x.fen", *options, "--fail-above", "rounded.mean_kl=1e9")
    kinds = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["kinds"]
    assert kinds["rounded"]["infinite_kl"] > 0
    assert result.exit_code == 3
    assert "net: rounded.mean_kl is inf, above 1e+09" in result.output


@pytest.mark.parametrize("value", ["inf", "1e400", "nan", "1e", ""])
def test_fail_above_with_no_number_is_rejected(value: str) -> None:
    with pytest.raises(BulkError, match=r"write KIND\.STATISTIC=VALUE"):
        Threshold.read(f"raw.max={value}")
