"""`movemask audit`: figures of whole files, against an independent calculation.

The calculation uses python-chess's legal moves, the vocabulary's names and scipy's dense softmax.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from movemask.audit.files import Folder
from movemask.audit.read import Choice
from movemask.audit.summary import summarise as summary_of
from movemask.board.position import Elo, Position
from movemask.cli.main import main
from movemask.leakage.cells import QUANTILES, SMALLEST
from movemask.leakage.kinds import KINDS
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import open_model
from tests.audit.audits import GAMES, audited, fens, run, summarised, table_of


def slots_of(board: chess.Board, model: Model) -> list[int]:
    """Legal slots by the vocabulary's names: from the mover's side, castling onto the rook, bare knight promotions."""
    names = {name: slot for slot, name in enumerate(model.vocabulary.names())}
    slots = []
    for move in board.legal_moves:
        target = move.to_square
        if board.is_castling(move):
            target = chess.square(7 if chess.square_file(target) == 6 else 0, chess.square_rank(target))
        flip = 0 if board.turn == chess.WHITE else 56
        bare = move.promotion == model.vocabulary.bare_promotion
        promotion = None if bare else move.promotion
        slots.append(names[chess.Move(move.from_square ^ flip, target ^ flip, promotion).uci()])
    return slots


def independently(model: Model, positions: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Leakage of each position by kind, dense and by scipy."""
    leakages: dict[str, list[float]] = {"raw": [], "multiplied": [], "unnormalised": [], "rounded": [], "raw_kl": []}
    for fen in positions:
        board = chess.Board(fen)
        batch = model.whole_batch([Position.read(fen)], [Elo(1500, 1500)])
        ((logits),) = model.session.run(model.feeds(batch), [model.contract.outputs.logits])[0]
        z = logits.astype(np.float64)
        legal = np.zeros(len(z), dtype=bool)
        legal[slots_of(board, model)] = True
        leakages["raw"].append(float(np.exp(logsumexp(z[~legal]) - logsumexp(z))))
        wrong = np.exp(log_softmax(np.where(legal, z, 0.0)))
        leakages["multiplied"].append(float(wrong[~legal].sum()))
        plain = log_softmax(z)
        leakages["unnormalised"].append(float(np.exp(plain[~legal]).sum()))
        right = log_softmax(z[legal])
        leakages["rounded"].append(float(abs(1 - np.round(np.exp(right), 4).sum())))
        leakages["raw_kl"].append(float((np.exp(right) * (right - plain[legal])).sum()))
    return {kind: np.array(values) for kind, values in leakages.items()}


def held_to(summary: dict[str, Any], expected: dict[str, NDArray[np.float64]]) -> None:
    for kind in ("raw", "multiplied", "unnormalised"):
        figures, values = summary["kinds"][kind], expected[kind]
        assert figures["count"] == len(values)
        assert figures["mean"] == pytest.approx(values.mean(), rel=1e-9)
        assert figures["max"] == pytest.approx(values.max(), rel=1e-9)
        for name, q in QUANTILES.items():
            true = np.quantile(values, q, method="inverted_cdf")
            assert true * (1 - 1e-9) <= figures[name] <= true * 1.02  # never too low, at most 2 % too high
    assert summary["kinds"]["rounded"]["mean"] == pytest.approx(expected["rounded"].mean(), rel=1e-9)
    assert summary["kinds"]["raw"]["mean_kl"] == pytest.approx(expected["raw_kl"].mean(), rel=1e-6)
    assert summary["kinds"]["served"]["max"] == 0


def test_figures_match_independent_calculation(tmp_path: Path) -> None:
    positions = fens(150)
    (tmp_path / "x.fen").write_text("\n".join(positions))
    audited("--elo", 1500, tmp_path / "x.fen", "--model", "movemask-8", "--out", tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    model = open_model(shipped_models() / "movemask-8.toml", 1)
    table = pq.read_table(tmp_path / "out" / "positions.parquet")
    assert [Position.read(fen).fen for fen in positions] == table["fen"].to_pylist()
    expected = independently(model, positions)
    np.testing.assert_allclose(table["raw"].to_numpy(), expected["raw"], rtol=1e-3)
    held_to(summary["models"]["movemask-8"], expected)


def test_positions_table_of_games(tmp_path: Path, models: Path) -> None:
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
    for row in rows:
        among = {move["uci"]: move["probability"] for move in row["legal"]}
        assert among.get(row["played"], row["played_probability"]) == row["played_probability"]
        assert 0 < row["played_probability"] <= row["top_probability"]
    surprise = -np.log([row["played_probability"] for row in rows]).mean()
    first = np.mean([row["played"] == row["top"] for row in rows])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]
    assert summary["played"] == {"moves": 15, "cross_entropy": pytest.approx(surprise), "top1": pytest.approx(first)}
    assert f"15 played moves: cross-entropy {surprise:.3f} nats, top-1 {100 * first:.1f} %" in result.output
    assert rows[1]["fen"] == "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
    assert set(KINDS) <= set(rows[0])
    assert rows[0]["top"] == rows[0]["legal"][0]["uci"]
    masses = [move["probability"] for move in rows[0]["illegal"]]
    assert masses == sorted(masses, reverse=True)
    assert "left out: game that cannot be played through: 1" in result.output
    assert "x.pgn: pgn: game 3:" in result.output


def test_skipped_plies(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    options = ("--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    audited(tmp_path / "x.pgn", *options, "--first-ply", 4, "--every", 3, "--limit", 1, "--kinds", "raw,served")
    table = pq.read_table(tmp_path / "out" / "positions.parquet")
    assert table["ply"].to_pylist() == [4, 7]
    assert [kind for kind in KINDS if kind in table.column_names] == ["raw", "served"]


@pytest.mark.parametrize("every", [2, 3, 4, 6, 101])
def test_every_nth_ply_takes_both_sides_alike(every: int) -> None:
    """A sample of White's plies alone would pass a network that misreads Black's half of the board."""
    choice = Choice(first_ply=3, every=every)
    lengths = [17, 40, 1, 4, 80, 9, 61, 5, 12, 33]
    plies = [(game, ply) for game, end in enumerate(lengths, 1) for ply in range(end) if choice.takes(game, ply)]
    white, black = (sum(ply % 2 == side for _, ply in plies) for side in (0, 1))
    assert min(white, black) >= 0.4 * len(plies) > 0
    assert min(ply for _, ply in plies) == 3
    for game, end in enumerate(lengths, 1):
        count = sum(its_game == game for its_game, _ in plies)
        assert abs(count - max(0, end - 3) / every) < 2
        if every < 10 and end > 30:
            assert {ply % 2 for its_game, ply in plies if its_game == game} == {0, 1}


def test_audit_counts_positions_of_each_side(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    options = ("--models-dir", models, "--model", "net", "--kinds", "multiplied")
    result = audited(tmp_path / "x.pgn", *options, "--every", 2, "--out", tmp_path / "out")
    assert "7 positions (4 with White to move, 3 with Black)" in result.output
    assert "warning" not in result.output
    (tmp_path / "white.fen").write_text("\n".join(fen for fen in fens(40) if " w " in fen))
    result = audited(tmp_path / "white.fen", *options, "--out", tmp_path / "white")
    assert "warning: no position has Black to move, so this does not say how such positions are read" in result.stderr
    assert "Warning: no position has Black to move" in (tmp_path / "white" / "report.html").read_text()


def test_report_compares_networks_and_marks_masked_one(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    result = run(
        tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--model", "masked",
        "--out", tmp_path / "out", "--fail-above", "raw.mean=0.000001", "--fail-above", "multiplied.max=1",
    )  # fmt: skip
    assert result.exit_code == 3
    assert "net: raw.mean is " in result.output
    assert "masked: raw.mean=1e-06 is skipped: the model was trained with the mask" in result.output
    assert "multiplied.max is" not in result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())["models"]
    assert {name: one["trained_with_mask"] for name, one in summary.items()} == {"net": False, "masked": True}
    for one in summary.values():
        for dimension in ("phase", "side", "in_check", "legal_moves", "elo"):
            counts = [group["raw"]["count"] for group in one["by"][dimension].values()]
            assert sum(counts) == one["positions"] == 15
        causes = one["by"]["cause"].values()
        assert 0 < sum(group["share"] for group in causes) <= 1 + 1e-9
        assert all(set(group["raw"]) == {"count", "mean", "max", *QUANTILES} for group in causes)  # no flips, no KL
        raws = [row["raw"] for row in one["worst"]["raw"]]
        assert raws == sorted(raws, reverse=True)
        assert raws[0] == one["kinds"]["raw"]["max"]


def test_quantiles_are_at_most_2_percent_too_high(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    spread: list[float | None] = (10 ** rng.uniform(-20, 0, 5000)).tolist()
    spread[::7] = [None] * len(spread[::7])
    lumps: list[float | None] = rng.choice([0.0, 1e-16, 0.1, 0.1000001, 0.5], 3000).tolist()
    samples: dict[str, list[float | None]] = {"spread": spread, "lumps": lumps, "few": [0.167, 0.285]}
    table_of(tmp_path / "t.parquet", samples, [1, 7, 33])
    for model in summarised(tmp_path / "t.parquet"):
        measured = [(n, value) for n, value in enumerate(samples[model.name]) if value is not None]
        groups = {
            ("all", ""): [value for _, value in measured],
            ("in_check", "true"): [value for n, value in measured if n % 2 == 0],
            ("legal_moves", "30-39"): [value for n, value in measured if n % 3 == 2],
            ("elo", "unknown"): [value for _, value in measured],
            ("cause", "blocked"): [value / 2 for _, value in measured if value > 0],
        }
        for (dimension, group), values in groups.items():
            quantiles = model.of("raw", dimension, group).quantiles if values else {}
            for name, q in QUANTILES.items() if values else ():
                share = Fraction(str(q)) * len(values)
                ordered = np.sort(values)
                true = next(one for one in ordered if np.searchsorted(ordered, one, side="right") >= share)
                bounds = (true, true * 1.02 * (1 + 1e-12)) if true >= SMALLEST else (0, 0)
                quantile = quantiles[name]
                assert quantile is not None
                assert bounds[0] <= quantile <= bounds[1], (model.name, dimension, group, name)
        assert set(model.of("served").quantiles.values()) == {0.0}


def test_figures_of_games_beside_single_positions(tmp_path: Path, models: Path) -> None:
    (tmp_path / "games.pgn").write_text(GAMES)
    (tmp_path / "list.epd").write_text("\n".join(fens(30)))
    files = (tmp_path / "games.pgn", tmp_path / "list.epd")
    audited(*files, "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    table = tmp_path / "out" / "positions.parquet"
    (model,) = summary_of(KINDS, ["net"], Folder(str(table)))
    rows = [row for row in pq.read_table(table).to_pylist() if row["source"].endswith("games.pgn")]
    assert model.games is not None
    assert len(rows) == model.of_games == model.games.positions == 15
    assert model.positions == 45
    for phase in ("", *{row["phase"] for row in rows}):
        cell = model.games.of("raw", "phase" if phase else "all", phase)
        chosen = [row for row in rows if phase in ("", row["phase"])]
        assert (cell.count, cell.flips) == (len(chosen), sum(row["raw_flipped"] for row in chosen))
        assert cell.mean == pytest.approx(np.mean([row["raw"] for row in chosen]))
    cause = model.games.groups("cause")[0]
    mass = sum(row[f"cause_{cause}"] for row in rows)
    assert model.games.of("raw", "cause", cause).sum == pytest.approx(mass)
    assert model.games.of("raw").mean != model.of("raw").mean


def test_standard_input_and_chess960(tmp_path: Path, models: Path) -> None:
    lines = "nrbbqkrn/pppppppp/8/8/8/8/PPPPPPPP/NRBBQKRN w GBgb - 0 1\nx\n7k/5Q2/6K1/8/8/8/8/8 b - - 0 1\n"
    out = tmp_path / "out"
    arguments = ["audit", "-", "--chess960", "--models-dir", str(models), "--model", "net", "--out", str(out)]
    result = CliRunner().invoke(main, arguments, input=lines)
    assert result.exit_code == 0, result.output
    (row,) = pq.read_table(out / "positions.parquet").to_pylist()
    assert row["chess960"] is True
    assert "left out: line that is not a position: 1" in result.output
    assert "left out: finished game: 1" in result.output


def test_rejected_items_are_listed_by_reason(tmp_path: Path, models: Path) -> None:
    file, finished = tmp_path / "x.epd", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
    file.write_text("\n".join([*[finished] * 22, *fens(2), "first fault", finished, "second fault"]) + "\n")
    result = audited(file, "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    lines = [
        line.split(": ")[:3] if line[0] == "l" else int(line.split(": ")[1][5:])
        for line in result.stderr.splitlines()
        if line.startswith(("left out", "  "))
    ]
    assert lines == [
        *(["left out", "finished game", "23, such as"], 1, 2, 3, 4, 5),
        *(["left out", "line that is not a position", "2"], 25, 27),
    ]
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.search(r"finished game, examples:<br>\S+: line 1: .*<br>\S+: line 5: [^<]*</p>", page)
    assert re.search(r"line that is not a position, examples:<br>\S+: line 25: [^<]*<br>\S+: line 27: [^<]*</p>", page)
