"""What a user would lose: targets that are what the teacher said of that very position, for the student's own slots."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.encoding.published import encode_maia3_history
from movemask.encoding.vocabularies import vocabulary
from movemask.network.registry import load_registry
from tests.ground_truth import random_game
from tests.networks import Tensor, write_graph
from tests.training.test_data import DAMAGES, Damage, csv_file, data_of, row, shard_of
from training import dataset, maia3, own_play, teacher
from training.config import Run, Teaching
from training.data import make_shards
from training.history import Histories
from training.legal import board_of
from training.replay import replay
from training.shards import EN_PASSANT, read_shard
from training.targets import Targets, TargetsError, probabilities, read_targets, write_targets


def boards_of(moves: list[chess.Move]) -> list[chess.Board]:
    """The board before each move, with the moves that led to it."""
    board, found = chess.Board(), []
    for move in moves:
        found.append(board.copy())
        board.push(move)
    return found


def run_of(folder: Path) -> tuple[Run, Teaching]:
    data = data_of(folder, csv_file(folder, [row(i, white_elo=str(900 + 20 * i)) for i in range(60)]))
    teaching = Teaching(folder=folder / "targets", asked=0.1, passes=2, processes=1)
    return Run(folder=folder / "run", data=data, teaching=teaching), teaching


@pytest.fixture(scope="module")
def maia3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network in Maia-3's shape, a batch of one and whole ratings, made ready."""
    folder, draw = tmp_path_factory.mktemp("maia3"), np.random.default_rng(3)

    nodes = [
        helper.make_node("Reshape", ["tokens", "flat"], ["squares"]),
        helper.make_node("MatMul", ["squares", "features"], ["few"]),
        helper.make_node("MatMul", ["few", "weights"], ["hidden"]),
        helper.make_node("Cast", ["self_elo"], ["mine"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["oppo_elo"], ["its"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["mine", "its"], ["apart"]),
        helper.make_node("Reshape", ["apart", "column"], ["difference"]),
        helper.make_node("MatMul", ["difference", "by_rating"], ["shift"]),
        helper.make_node("Add", ["hidden", "shift"], ["logits_move"]),
        helper.make_node("MatMul", ["squares", "worth"], ["logits_value"]),
    ]
    inputs = [Tensor("tokens", (64, 96)), Tensor("self_elo", (), "int64"), Tensor("oppo_elo", (), "int64")]
    outputs = [Tensor("logits_move", (4352,)), Tensor("logits_value", (3,))]
    sizes = {"features": (0.1, 6144, 8), "weights": (0.3, 8, 4352), "by_rating": (0.002, 1, 4352)}
    sizes |= {"worth": (0.1, 6144, 3)}
    constants = {name: (scale * draw.normal(size=shape)).astype("f4") for name, (scale, *shape) in sizes.items()}
    shapes = {"flat": np.array([1, 6144]), "column": np.array([1, 1])}
    write_graph(folder / "given.onnx", nodes, inputs, outputs, {**constants, **shapes}, batch=1)
    maia3.prepare(folder / "given.onnx", folder / "made")
    return folder / "made"


@pytest.fixture(scope="module")
def made(maia3_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards, and the targets of all of them."""
    folder = tmp_path_factory.mktemp("made") / "run"
    folder.mkdir()
    run, _ = run_of(folder)
    make_shards(run.data)
    teacher.make_targets(run, maia3_folder)
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> tuple[Run, Teaching]:
    """A run of its own with the same shards and targets."""
    shutil.copytree(made, tmp_path / "run")
    return run_of(tmp_path / "run")


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_tokens_of_a_replay_are_the_services(seeds: list[int]) -> None:
    games = [random_game(seed, 80) for seed in seeds]
    shard = shard_of(games)
    found = Histories.of(replay(shard), shard.games["plies"].astype(np.int64))
    for number, moves in enumerate(games):
        rows = found.row_of[found.first[number] + np.arange(len(moves))]
        expected = [encode_maia3_history(Position(board)) for board in boards_of(moves)]
        assert np.array_equal(found.tokens(rows), np.stack(expected))


def test_targets_are_what_the_services_own_path_says_of_those_positions(made: Path, maia3_folder: Path) -> None:
    shard = read_shard(made / "shards" / "train-00001.shard")
    targets = read_targets(made / "targets" / "train-00001.00.targets")
    found, starts = replay(shard), np.cumsum(shard.games["plies"].astype(int)) - shard.games["plies"]
    slots = vocabulary("movemask-1880")
    floats = load_registry(maia3_folder, "maia3-5m", threads=1).get("maia3-5m")
    apart = []
    for place, at in enumerate(targets.rows.tolist()):
        game, ply = int(found.game[at]), int(found.ply[at])
        board = chess.Board()
        for packed in shard.plies[starts[game] : starts[game] + ply].tolist():
            board.push(slots.move(packed & (EN_PASSANT - 1), board))
        ratings = [float(shard.games[name][game]) for name in ("white_elo", "black_elo")]
        elo = Elo(*(ratings if board.turn == chess.WHITE else ratings[::-1]))
        batch = floats.whole_batch([Position(board)], [elo])
        logits = floats.evaluate(batch).logits[0][batch.slots].astype(np.float64)
        share = np.exp(logits - np.logaddexp.reduce(logits))
        expected = {slots.slot(move, board): p for move, p in zip(moves_of(batch.codes), share, strict=True)}
        entries = slice(targets.indptr[place], targets.indptr[place + 1])
        held = dict(zip(targets.slots[entries].tolist(), probabilities(targets.roots[entries]).tolist(), strict=True))
        assert set(held) <= set(expected)
        apart.append(sum(abs(held.get(slot, 0.0) - p) for slot, p in expected.items()) / 2)
    assert len(apart) > 20
    assert np.mean(apart) < 0.03  # the teacher's integers


def test_killed_it_goes_on_and_makes_only_what_is_missing(copied: tuple[Run, Teaching], maia3_folder: Path) -> None:
    run, teaching = copied
    files = sorted(teaching.folder.glob("*.targets"))
    count = sum(len(read_targets(file)) for file in files)
    assert len(files) == 2 * len(list(run.data.folder.glob("train-*.shard")))
    whole = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:99])
    assert teacher.make_targets(run, maia3_folder) == count
    for file, (content, made) in whole.items():
        assert file.read_bytes() == content
        assert (file.stat().st_mtime_ns == made) == (file not in files[1:3])
    with pytest.raises(SystemExit, match="name another folder"):
        teacher.make_targets(replace(run, seed=run.seed + 1), maia3_folder)


def test_no_position_is_asked_about_twice_and_rare_ratings_more_often(copied: tuple[Run, Teaching]) -> None:
    run, teaching = copied
    for shard in run.data.folder.glob("train-*.shard"):
        parts = [read_targets(teacher.target_file(teaching, shard, part)).rows for part in range(2)]
        rows = np.concatenate(parts)
        assert len(set(rows.tolist())) == len(rows)
    positions = replay(shard_of([random_game(seed) for seed in range(40)]))
    common, rare = (
        teacher.drawn_rows(positions, np.full(len(positions.ply), rating), run.data, teaching, 0, rng)
        for rating, rng in ((1500, np.random.default_rng(1)), (2300, np.random.default_rng(1)))
    )
    assert len(rare) / len(common) == pytest.approx(2.5, abs=0.3)


def test_games_of_the_teacher_against_itself_are_a_shard_with_targets_of_its_own(
    tmp_path: Path, maia3_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_play, "LONGEST", 50)
    run, teaching = run_of(tmp_path)
    for folder in (run.data.folder, teaching.folder):
        folder.mkdir()
    count = own_play.play(run, maia3_folder, games=3, number=7)
    file = run.data.folder / "train-own-00007.shard"
    shard, targets = read_shard(file), read_targets(teaching.folder / "train-own-00007.00.targets")
    assert count == len(targets) > 80
    assert set(np.digitize(shard.games["white_elo"], [600, 1100, 2100, 2600])) == {1, 3}
    positions = replay(shard)
    legal = [  # of each position that the teacher was asked about
        {vocabulary("movemask-1880").slot(move, board) for move in board.legal_moves}
        for board in map(board_of, positions.bitboards[targets.rows])
    ]
    for place, known in enumerate(legal):
        slots = targets.slots[targets.indptr[place] : targets.indptr[place + 1]].tolist()
        assert set(slots) <= known
    found = dataset.load(run.data, "train", run.seed, teaching)
    assert len(found) == count


def test_training_sees_the_targets_of_its_own_positions(copied: tuple[Run, Teaching]) -> None:
    run, teaching = copied
    (teaching.folder / "train-00000.01.targets").write_bytes(b"gone")
    found = dataset.load(run.data, "train", run.seed, teaching)
    assert len(found.skipped) == 1
    assert found.targets is not None
    assert len(found.targets) == len(found)
    start = 0
    for file in sorted(teaching.folder.glob("*.targets")):
        if file.name == "train-00000.01.targets":
            continue
        one = read_targets(file)
        positions = replay(read_shard(run.data.folder / f"{file.name.split('.')[0]}.shard"))
        part = slice(start, start := start + len(one))
        assert np.array_equal(found.positions.bitboards[part], positions.bitboards[one.rows])
        assert np.array_equal(found.targets.roots[found.targets.indptr[part.start] :][: len(one.roots)], one.roots)
    slots, weights = found.targets.padded(np.array([0, 5, 3]))
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)
    assert slots.shape == weights.shape
    (run.data.folder / "train-00001.shard").write_bytes((run.data.folder / "train-00000.shard").read_bytes())
    with pytest.raises(SystemExit, match="made from another"):
        dataset.load(run.data, "train", run.seed, teaching)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_file_of_targets_is_an_error_that_names_it(damage: Damage, tmp_path: Path) -> None:
    rows, zeros, counts = np.arange(3, dtype=np.int32), np.zeros(3, np.uint8), np.array([1, 2, 1], np.uint16)
    entries = np.arange(4, dtype=np.uint16), np.full(4, 255, np.uint8)
    file = tmp_path / "train-00003.00.targets"
    write_targets(file, Targets(rows, zeros, counts, zeros, *entries, {"shard": "x"}))
    assert read_targets(file).about == {"shard": "x"}
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(TargetsError, match=r"train-00003\.00\.targets"):
        read_targets(file)
