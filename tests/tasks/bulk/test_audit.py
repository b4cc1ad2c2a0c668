"""What a researcher would lose: figures of whole files that are true, a run that can be stopped, a report that opens.

The figures are held to a second calculation: python-chess's legal moves, the vocabulary's names, scipy's dense softmax.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from markupsafe import escape
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from movemask.board.elo import Elo
from movemask.board.legal import Rules
from movemask.board.position import Position
from movemask.cli.main import main
from movemask.errors import AuditError
from movemask.inference.model import Model
from movemask.inference.registry import open_model
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, MEANINGS
from movemask.settings import shipped_models
from movemask.store.cells import QUANTILES
from movemask.tasks.bulk.files import Folder
from movemask.tasks.bulk.parts import read_table
from movemask.tasks.bulk.rows import schema
from movemask.tasks.bulk.summary import ModelSummary, Threshold
from movemask.tasks.bulk.summary import summarised as summary_of
from movemask.tasks.bulk.tally import Tally
from tests.conftest import ROOT
from tests.ground_truth import tricky
from tests.networks import ONNX_TOML, write_fake, write_onnx
from tests.processes import running, started, until, workers

MAIA = ROOT.parent / "shared" / "maia1" / "maia-1500.pb.gz"

GAMES = """[Event "one"]
[WhiteElo "1500"]
[BlackElo "2150"]

1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4. O-O Nf6 5. d3 d6 1-0

[Event "two"]

1. d4 d5 2. Qd3 Qd6 3. Qb5+ *

[Event "broken"]

1. e4 e5 2. Ke3 *
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def audited(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "net.toml").write_text(ONNX_TOML)
    write_onnx(folder / "net.onnx")
    write_fake(folder, "masked", trained_with_mask=True)
    return folder


def fens(count: int) -> list[str]:
    """Positions with legal moves, of the public suites."""
    found = [fen for fen, moves, _ in tricky() if moves and chess.Board(fen).is_valid()]
    return found[:: max(1, len(found) // count)][:count]


def slots_of(board: chess.Board, model: Model) -> list[int]:
    """Legal slots by the vocabulary's names: from the mover's side, castling onto the rook, bare knight promotions."""
    names = {name: slot for slot, name in enumerate(model.vocabulary.names())}
    found = []
    for move in board.legal_moves:
        target = move.to_square
        if board.is_castling(move):
            target = chess.square(7 if chess.square_file(target) == 6 else 0, chess.square_rank(target))
        flip = 0 if board.turn == chess.WHITE else 56
        bare = move.promotion == model.vocabulary.bare_promotion
        promotion = None if bare else move.promotion
        found.append(names[chess.Move(move.from_square ^ flip, target ^ flip, promotion).uci()])
    return found


def independently(model: Model, positions: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Leakage of each position by kind, dense and by scipy."""
    found: dict[str, list[float]] = {"raw": [], "multiplied": [], "unnormalised": [], "rounded": [], "raw_kl": []}
    for fen in positions:
        board = chess.Board(fen)
        batch = model.whole_batch([Position.read(fen)], [Elo(1500, 1500)], Rules.PYTHON_CHESS)
        ((logits),) = model.session.run(model.feeds(batch), [model.contract.outputs.logits])[0]
        z = logits.astype(np.float64)
        legal = np.zeros(len(z), dtype=bool)
        legal[slots_of(board, model)] = True
        found["raw"].append(float(np.exp(logsumexp(z[~legal]) - logsumexp(z))))
        wrong = np.exp(log_softmax(np.where(legal, z, 0.0)))
        found["multiplied"].append(float(wrong[~legal].sum()))
        plain = np.exp(log_softmax(z))
        found["unnormalised"].append(float(plain[~legal].sum()))
        right = np.exp(log_softmax(np.where(legal, z, -np.inf)))
        found["rounded"].append(float(abs(1 - np.round(right, 4).sum())))
        p, q = right[legal], plain[legal]
        found["raw_kl"].append(float((p * np.log(p / q)).sum()))
    return {kind: np.array(values) for kind, values in found.items()}


def held_to(summary: dict[str, Any], expected: dict[str, NDArray[np.float64]]) -> None:
    for kind in ("raw", "multiplied", "unnormalised"):
        figures, values = summary["kinds"][kind], expected[kind]
        assert figures["count"] == len(values)
        assert figures["mean"] == pytest.approx(values.mean(), rel=1e-9)
        assert figures["max"] == pytest.approx(values.max(), rel=1e-9)
        for name, q in QUANTILES.items():
            assert figures[name] == pytest.approx(np.quantile(values, q, method="inverted_cdf"), rel=1e-9)
    assert summary["kinds"]["rounded"]["mean"] == pytest.approx(expected["rounded"].mean(), rel=1e-9)
    assert summary["kinds"]["raw"]["mean_kl"] == pytest.approx(expected["raw_kl"].mean(), rel=1e-6)
    assert summary["kinds"]["served"]["max"] == 0


def test_the_figures_of_our_network_are_an_independent_calculations(tmp_path: Path) -> None:
    positions = fens(150)
    (tmp_path / "x.fen").write_text("\n".join(positions))
    audited(tmp_path / "x.fen", "--model", "movemask-2", "--elo", 1500, 1500, "--out", tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    model = open_model(shipped_models() / "movemask-2.toml", 1)
    table = pq.read_table(tmp_path / "out" / "positions.parquet")
    assert [Position.read(fen).fen for fen in positions] == table["fen"].to_pylist()
    # 8-bit integers: the logits of a position depend a little on the others in its batch, so they are one by one here.
    expected = independently(model, positions)
    np.testing.assert_allclose(table["raw"].to_numpy(), expected["raw"], rtol=1e-3)
    held_to(summary["models"]["movemask-2"], independently(model, positions))


@pytest.mark.skipif(not MAIA.exists(), reason="../shared/maia1 is not there: no maia-1500 to measure")
def test_the_figures_of_maia_1500_are_an_independent_calculations(tmp_path: Path) -> None:
    positions = fens(300)
    (tmp_path / "x.fen").write_text("\n".join(positions))
    folder = tmp_path / "maia"
    assert CliRunner().invoke(main, ["models", "import", str(MAIA), "--models-dir", str(folder)]).exit_code == 0
    audited(tmp_path / "x.fen", "--models-dir", folder, "--out", tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    held_to(summary["models"]["maia-1500"], independently(open_model(folder / "maia-1500.toml", 1), positions))


def test_the_table_of_games_has_every_position_with_its_game_and_ratings(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    result = audited(tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "positions.parquet").to_pylist()
    assert [(row["item"], row["ply"]) for row in rows] == [
        *((1, ply) for ply in range(10)),
        *((2, p) for p in range(5)),
    ]
    assert [(row["elo"], row["opponent_elo"]) for row in rows[:2]] == [(1500, 2150), (2150, 1500)]
    assert rows[10]["elo"] is None
    assert [row["played"] for row in rows[:3]] == ["e2e4", "e7e5", "g1f3"]
    assert rows[1]["fen"] == "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
    assert set(KINDS) <= set(rows[0])
    assert rows[0]["top"] == rows[0]["legal"][0]["uci"]
    masses = [move["probability"] for move in rows[0]["illegal"]]
    assert masses == sorted(masses, reverse=True)
    assert "left out: game that cannot be played through: 1" in result.output
    assert "x.pgn: pgn: game 3:" in result.output


def test_plies_can_be_left_out(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    options = ("--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    audited(tmp_path / "x.pgn", *options, "--first-ply", 4, "--every", 3, "--limit", 1, "--kinds", "raw,served")
    table = pq.read_table(tmp_path / "out" / "positions.parquet")
    assert table["ply"].to_pylist() == [4, 7]
    assert [kind for kind in KINDS if kind in table.column_names] == ["raw", "served"]


def test_networks_are_compared_and_the_masked_one_is_marked(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    result = run(
        tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--model", models / "masked.toml",
        "--out", tmp_path / "out", "--fail-above", "raw.mean=0.000001", "--fail-above", "multiplied.max=1",
    )  # fmt: skip
    assert result.exit_code == 3
    assert "net: raw.mean is " in result.output
    assert "masked: raw.mean=1e-06 is not asked: trained with the mask" in result.output
    assert "multiplied.max is" not in result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]
    assert {name: one["trained_with_mask"] for name, one in summary.items()} == {"net": False, "masked": True}
    for one in summary.values():
        for dimension in ("phase", "side", "in_check", "legal_moves", "elo"):
            counts = [group["raw"]["count"] for group in one["by"][dimension].values()]
            assert sum(counts) == one["positions"] == 15
        assert sum(group["share"] for group in one["by"]["cause"].values()) <= 1 + 1e-9
        raws = [row["raw"] for row in one["worst"]["raw"]]
        assert raws == sorted(raws, reverse=True)
        assert raws[0] == one["kinds"]["raw"]["max"]


def table_of(file: Path, values: dict[str, list[float | None]], legal_moves: Sequence[int]) -> None:
    """A table with these values of each network as `raw` and as the mass of a cause, 1 in 7 not measured."""
    writer = pq.ParquetWriter(file, schema(("raw", "served")))
    for name, raws in values.items():
        for start in range(0, len(raws), 997):
            rows = []
            for number, raw in enumerate(raws[start : start + 997], start):
                row: dict[str, Any] = dict.fromkeys(schema(("raw", "served")).names)
                row |= {f"cause_{cause.value}": 0.0 for cause in Cause}
                row |= {"model": name, "digest": "d", "trained_with_mask": False, "turn": "white", "phase": "opening"}
                row |= {"in_check": number % 2 == 0, "legal_moves": legal_moves[number % len(legal_moves)]}
                row |= {"fen": str(number), "raw": raw, "raw_flipped": False, "raw_kl": raw, "served": 0.0}
                row |= {"served_flipped": False, "served_kl": 0.0, "cause_blocked": (raw or 0.0) / 2}
                rows.append(row)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema(("raw", "served"))))
    writer.close()


def summarised(*files: Path) -> list[ModelSummary]:
    """The summary of tables, each a part."""
    parts = [Folder(str(file)) for file in files]
    tally = Tally.merged(Tally.of(read_table(part)) for part in parts)
    return summary_of(tally, [[part] for part in parts], list(tally.models))


def test_quantiles_are_those_of_all_values_by_definition_in_every_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    spread: list[float | None] = (10 ** rng.uniform(-20, 0, 5000)).tolist()
    spread[::7] = [None] * len(spread[::7])
    lumps: list[float | None] = rng.choice([0.0, 1e-16, 0.1, 0.1000001, 0.5], 3000).tolist()
    made: dict[str, list[float | None]] = {"spread": spread, "lumps": lumps, "few": [0.167, 0.285]}
    table_of(tmp_path / "t.parquet", made, [1, 7, 33])
    for model in summarised(tmp_path / "t.parquet"):
        measured = [(n, value) for n, value in enumerate(made[model.name]) if value is not None]
        groups = {
            ("all", ""): [value for _, value in measured],
            ("in_check", "true"): [value for n, value in measured if n % 2 == 0],
            ("legal_moves", "30-39"): [value for n, value in measured if n % 3 == 2],
            ("elo", "unknown"): [value for _, value in measured],
            ("cause", "blocked"): [value / 2 for _, value in measured if value > 0],
        }
        for (dimension, group), values in groups.items():
            found = model.of("raw", dimension, group).quantiles() if values else {}
            for name, q in QUANTILES.items() if values else ():
                share = Fraction(str(q)) * len(values)
                ordered = np.sort(values)
                true = next(one for one in ordered if np.searchsorted(ordered, one, side="right") >= share)
                assert found[name] == true, (model.name, dimension, group, name)
        assert set(model.of("served").quantiles().values()) == {0.0}


def test_a_check_of_few_positions_fails_safe(tmp_path: Path, models: Path) -> None:
    """Fourteen positions, one of them bad: the highest is their p95, p99 and p99.9."""
    (tmp_path / "x.fen").write_text("\n".join(fens(14)[:14]))
    options = ("--models-dir", models, "--model", "net")
    audited(tmp_path / "x.fen", *options, "--out", tmp_path / "out")
    kinds = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["kinds"]
    raws = sorted(pq.read_table(tmp_path / "out" / "positions.parquet")["raw"].to_pylist())
    assert kinds["raw"]["p99"] == kinds["raw"]["p95"] == kinds["raw"]["max"] == raws[-1]
    assert kinds["raw"]["p50"] == raws[6]
    between = (raws[-1] + raws[-2]) / 2
    for statistic in ("p95", "p99", "p999", "max"):
        result = run(
            tmp_path / "x.fen", *options, "--out", tmp_path / statistic, "--fail-above", f"raw.{statistic}={between!r}"
        )
        assert result.exit_code == 3, result.output


def test_a_check_of_what_could_not_be_measured_fails(tmp_path: Path) -> None:
    write_fake(tmp_path / "m", planes="fen-77", vocabulary="uci-1968")  # not mirrored: nothing can be unmirrored
    (tmp_path / "x.fen").write_text("\n".join(fens(5)))
    result = run(
        tmp_path / "x.fen",
        "--models-dir",
        tmp_path / "m",
        "--out",
        tmp_path / "out",
        "--fail-above",
        "unmirrored.max=1",
    )
    assert result.exit_code == 3
    assert "fake: unmirrored.max could not be measured" in result.output


def test_a_check_of_what_was_measured_in_part_fails(tmp_path: Path) -> None:
    """What could not be measured may be what leaks most: a mean or maximum of the rest says nothing of it."""
    table_of(tmp_path / "t.parquet", {"whole": [0.1, 0.2], "part": [0.1, None]}, [20])
    whole, part = summarised(tmp_path / "t.parquet")
    for text in ("raw.max=0.5", "raw.mean=0.5", "raw.p50=0.5", "raw.flips=5", "raw.mean_kl=5"):
        threshold = Threshold.read(text)
        assert (threshold.exceeded(whole), threshold.exceeded(part)) == (False, True), text


def test_a_check_of_divergences_that_are_infinite_fails(tmp_path: Path, models: Path) -> None:
    """Rounding to four places gives most moves nothing at all in a position with a clear best move."""
    (tmp_path / "x.fen").write_text("\n".join(fens(20)))
    options = ("--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    result = run(tmp_path / "x.fen", *options, "--fail-above", "rounded.mean_kl=1e9")
    kinds = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["kinds"]
    assert kinds["rounded"]["infinite_kl"] > 0
    assert result.exit_code == 3
    assert "net: rounded.mean_kl is inf, above 1e+09" in result.output


@pytest.mark.parametrize("value", ["inf", "1e400", "nan", "1e", ""])
def test_a_check_against_no_number_is_refused(value: str) -> None:
    with pytest.raises(AuditError, match=r"write KIND\.STATISTIC=VALUE"):
        Threshold.read(f"raw.max={value}")


def test_causes_have_no_figures_that_nobody_measured(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    audited(tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    causes = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["by"]["cause"]
    assert causes
    for found in causes.values():
        assert set(found["raw"]) == {"count", "mean", "max", *QUANTILES}


class Page(HTMLParser):
    """Tags that are open, and what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#"):
                self.fetched.append(value)


def test_the_report_holds_all_it_shows(tmp_path: Path, models: Path) -> None:
    (tmp_path / "<b>.pgn").write_text(GAMES)
    audited(
        tmp_path / "<b>.pgn", "--models-dir", models, "--model", "net", "--model", "masked", "--out", tmp_path / "out"
    )
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.fetched == []
    assert "@import" not in text
    assert "url(http" not in text
    assert "<b>.pgn" not in text  # a file's name is not markup
    assert page.tags.count("figure") == 2 * (6 + 3)  # the worst positions of each network, by raw and multiplied
    assert text.count("trained with the mask: raw means nothing") == 1
    assert "raw leakage" in text
    for kind in KINDS:
        assert f"<dt><code>{kind}</code></dt><dd>{escape(MEANINGS[kind])}</dd>" in text
    zeros = re.findall(
        r"Exactly 0 at every position, with no best move changed and a mean divergence of at most (.*?)\.</p>", text
    )
    assert len(zeros) == 2
    assert all("<code>filled_1e9_float32</code>, " in one and "<code>served</code>" in one for one in zeros)
    assert "<td>filled_1e9_float32</td>" not in text
    assert text.count("<td>raw</td>") == 2
    assert "leaves_king_in_check" in text or "wrong_geometry" in text


def test_a_networks_name_is_drawn_as_it_is(tmp_path: Path) -> None:
    for name in ("_hidden", "cost $a^$"):
        write_fake(tmp_path / "m", name)
    (tmp_path / "x.fen").write_text("\n".join(fens(20)))
    names = ("--model", "_hidden", "--model", "cost $a^$")
    audited(tmp_path / "x.fen", "--models-dir", tmp_path / "m", *names, "--out", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    plots = "".join(text.split("<svg")[1:4])
    assert "_hidden" in plots
    assert "cost $a^$" in plots


def auditing(file: Path, out: Path, models: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "movemask", "audit", str(file), "--models-dir", str(models), "--model", "net"]
    return started([*command, "--out", str(out), "--jobs", "2", "--kinds", "raw"], stderr=subprocess.PIPE)


@contextmanager
def halfway(tmp_path: Path, models: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An audit into out/ that has done two parts or more, and is not through."""
    (tmp_path / "x.fen").write_text("\n".join(fens(600) * 40))
    parts = tmp_path / "out" / "parts"
    with auditing(tmp_path / "x.fen", tmp_path / "out", models) as process:
        until(lambda: len(list(parts.glob("*.parquet"))) >= 2 or process.poll() is not None, "two parts")
        assert process.poll() is None, "the run was over before it could be stopped"
        yield process


def comparable(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return {name: summary[name] for name in ("models", "left_out")}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_and_comes_to_the_same(tmp_path: Path, models: Path, by: signal.Signals) -> None:
    with halfway(tmp_path, models) as process:
        process.send_signal(by)
        assert process.wait(60) == (130 if by == signal.SIGINT else -signal.SIGKILL)
    parts = tmp_path / "out" / "parts"
    kept = {file.name: file.stat().st_mtime_ns for file in parts.glob("*.parquet")}
    assert kept
    seen: dict[str, int] = {}
    with auditing(tmp_path / "x.fen", tmp_path / "out", models) as again:
        while again.poll() is None:
            for file in list(parts.glob("*.parquet")):
                try:
                    seen[file.name] = file.stat().st_mtime_ns
                except FileNotFoundError:
                    break
            time.sleep(0.02)
        assert again.returncode == 0
    assert {name: seen[name] for name in kept} == kept  # what was done was not done again
    whole = ("--model", "net", "--kinds", "raw", "--out", tmp_path / "whole")
    audited(tmp_path / "x.fen", "--models-dir", models, *whole)
    assert comparable(tmp_path / "out") == comparable(tmp_path / "whole")


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_an_audit_that_is_killed(tmp_path: Path, models: Path, by: signal.Signals) -> None:
    with halfway(tmp_path, models) as process:
        begun = workers(process.pid)
        assert len(begun) == 2
        process.send_signal(by)
        process.wait()
        until(lambda: not any(map(running, begun)), "the workers have ended")


def test_a_worker_that_is_killed_is_told_in_one_line_and_nothing_is_counted_twice(tmp_path: Path, models: Path) -> None:
    with halfway(tmp_path, models) as process:
        os.kill(min(workers(process.pid)), signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
    assert said.decode().strip().splitlines()[-1].startswith("Error: a worker process died, perhaps for want of memory")
    assert b"Traceback" not in said
    with auditing(tmp_path / "x.fen", tmp_path / "out", models) as again:
        assert again.wait(120) == 0
    audited(tmp_path / "x.fen", "--models-dir", models, "--model", "net", "--kinds", "raw", "--out", tmp_path / "whole")
    assert comparable(tmp_path / "out") == comparable(tmp_path / "whole")


def test_what_cannot_be_done_is_told_in_one_line(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    (tmp_path / "empty.fen").write_text("# nothing\n")
    common = ("--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for arguments, words in [
        ((tmp_path / "no.pgn", *common), "no.pgn: no such file"),
        ((tmp_path, *common), "is a folder"),
        (
            (tmp_path / "x.pgn", *common, "--fail-above", "raw.p98=1"),
            "--fail-above 'raw.p98=1': write KIND.STATISTIC=VALUE",
        ),
        (
            (tmp_path / "x.pgn", *common, "--fail-above", "rounded.max=1", "--kinds", "raw"),
            "rounded is not among --kinds",
        ),
        ((tmp_path / "x.pgn", *common, "--kinds", "loud"), "--kinds: no 'loud'; there are raw"),
        ((tmp_path / "x.pgn", *common[:2], "--model", "x"), "no model 'x'"),
        ((tmp_path / "x.pgn", *common, "--model", "net"), "--model net: twice"),
        (("-", "-", *common), "-: standard input can be read once"),
        ((tmp_path / "x.pgn", *common[:4], "--out", other), "holds something else (thesis.tex)"),
        ((tmp_path / "empty.fen", *common), "no position to audit"),
        ((tmp_path / "x.pgn", *common[:4], "--out", tmp_path / "file"), "cannot be written: "),
        ((tmp_path / "x.pgn", *common[:4], "--out", tmp_path / "file" / "in"), "cannot be written: Not a directory"),
        ((tmp_path / "x.pgn", *common[:4], "--out", "/proc/movemask"), "--out /proc/movemask: cannot be written: "),
        ((tmp_path / "x.pgn", sys.executable, *common), "binary data, neither a PGN nor a list of FENs"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 1, words
        assert words in result.output
        assert all(len(line) < 400 for line in result.output.splitlines())
        assert isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
    assert (other / "thesis.tex").read_text() == "mine"


def test_a_finished_audit_is_not_written_over_unless_asked_to(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    arguments = (tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    audited(*arguments)
    again = run(*arguments)
    assert again.exit_code == 1
    assert "holds a finished audit" in again.output
    audited(*arguments, "--restart", "--limit", 1)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["positions"] == 10


def test_standard_input_and_chess960(tmp_path: Path, models: Path) -> None:
    lines = "nrbbqkrn/pppppppp/8/8/8/8/PPPPPPPP/NRBBQKRN w GBgb - 0 1\nx\n7k/5Q2/6K1/8/8/8/8/8 b - - 0 1\n"
    out = tmp_path / "out"
    arguments = ["audit", "-", "--chess960", "--models-dir", str(models), "--model", "net", "--out", str(out)]
    result = CliRunner().invoke(main, arguments, input=lines)
    assert result.exit_code == 0, result.output
    (row,) = pq.read_table(out / "positions.parquet").to_pylist()
    assert row["chess960"] is True
    assert "left out: line that is no position: 1" in result.output
    assert "left out: finished game: 1" in result.output
