"""What a user would lose: targets that are what the teacher said of that very position, for the student's own slots."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.legal import Rules
from movemask.board.move_codes import moves_of
from movemask.board.position import Position
from movemask.board.position import boards_of as board_arrays
from movemask.encoding import lc0 as lc0_planes
from movemask.encoding.vocabularies import vocabulary
from movemask.network.model import Model
from movemask.network.registry import load_registry
from movemask.tasks import installation
from tests.training.test_data import csv_file, data_of, random_game, row, shard_of
from tests.weight_files import Made
from training import dataset, nearest, teacher
from training.config import Run, Teaching
from training.data import make_shards
from training.history import Histories
from training.replay import replay
from training.shards import EN_PASSANT, read_shard
from training.targets import Targets, TargetsError, probabilities, read_targets, roots, write_targets

SHUFFLE = [chess.Move.from_uci(uci) for uci in ("g1f3", "g8f6", "f3g1", "f6g8", "g1f3", "g8f6", "e2e4", "e7e5")]


def boards_of(moves: list[chess.Move]) -> list[chess.Board]:
    """The board before each move, with the moves that led to it."""
    board, found = chess.Board(), []
    for move in moves:
        found.append(board.copy())
        board.push(move)
    return found


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_planes_of_a_replay_are_the_services_with_history_and_without(seeds: list[int]) -> None:
    games = [SHUFFLE, *(random_game(seed, 80) for seed in seeds)]
    shard = shard_of(games)
    found = Histories.of(replay(shard), shard.games["plies"].astype(np.int64))
    assert found.repeated.sum() >= 2
    for number, moves in enumerate(games):
        boards = boards_of(moves)
        rows = found.row_of[found.first[number] + np.arange(len(moves))]
        played = [Position(board) for board in boards]
        assert np.array_equal(found.planes(rows), lc0_planes.encode_all(played, board_arrays(played)))
        bare = [Position.read(board.fen()) for board in boards]  # python-chess: en passant only where it is legal
        assert np.array_equal(found.planes(rows, history=False), lc0_planes.encode_all(bare, board_arrays(bare)))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_every_legal_move_has_the_slot_that_python_chess_says_in_both_vocabularies(seed: int) -> None:
    theirs, ours = vocabulary("lc0-1858"), vocabulary("movemask-1880")
    for board in boards_of(random_game(seed)):
        moves = list(board.legal_moves)
        if not moves:
            continue
        slots = np.array([theirs.slot(move, board) for move in moves])
        pawns = np.array([board.piece_type_at(move.from_square) == chess.PAWN for move in moves])
        assert teacher.students_slots(slots, pawns).tolist() == [ours.slot(move, board) for move in moves]


def test_slots_of_illegal_moves_stay_what_they_are_and_only_a_pawn_promotes() -> None:
    theirs, ours = vocabulary("lc0-1858").names(), vocabulary("movemask-1880").names()
    every = np.arange(len(theirs))
    pieces = teacher.students_slots(every, np.zeros(len(every), dtype=np.bool_))
    assert [ours[slot] for slot in pieces] == list(theirs)
    pawns = teacher.students_slots(every, np.ones(len(every), dtype=np.bool_))
    changed = {(theirs[slot], ours[pawns[slot]]) for slot in every if ours[pawns[slot]] != theirs[slot]}
    assert len(changed) == 22
    assert ("a7b8", "a7b8n") in changed


def run_of(folder: Path, **changed: object) -> Run:
    data = data_of(folder, csv_file(folder, [row(i, white_elo=str(900 + 20 * i)) for i in range(60)]))
    if not data.folder.exists():
        make_shards(data)
    teaching = Teaching(folder=folder / "targets", per_game=3, passes=2, processes=1, **changed)  # type: ignore[arg-type]
    return Run(folder=folder / "run", data=data, teaching=teaching)


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nets")
    for rating in (1100, 1500, 1900):
        file = Made(seed=rating).write(folder, f"made-{rating}.pb.gz")
        installation.import_lc0(file, folder)
    return folder


def said(model: Model, board: chess.Board) -> dict[int, float]:
    """Probability by the student's slot, through the service's own path."""
    batch = model.whole_batch([Position(board)], [None], Rules.PYTHON_CHESS)
    logits = model.evaluate(batch).logits[0].astype(np.float64)
    share = np.exp(logits - np.logaddexp.reduce(logits))
    slots = vocabulary("movemask-1880")
    return {slots.slot(move, board): share[slot] for move, slot in zip(moves_of(batch.codes), batch.slots, strict=True)}


@pytest.mark.parametrize("history", [True, False])
def test_targets_are_what_the_services_own_path_says_of_those_positions(
    history: bool, tmp_path: Path, nets: Path
) -> None:
    run = run_of(tmp_path, history=history, threshold=0.0005)
    assert run.teaching is not None
    teacher.make_targets(run, nets)
    shard = read_shard(run.data.folder / "train-00001.shard")
    targets = read_targets(run.teaching.folder / "train-00001.00.targets")
    found, starts = replay(shard), np.cumsum(shard.games["plies"].astype(int)) - shard.games["plies"]
    slots = vocabulary("movemask-1880")
    names = list(targets.about["teachers"])
    models = {name: load_registry(nets, name, threads=1).get(name) for name in names}
    assert targets.about["teachers"] == {name: model.digest for name, model in models.items()}
    seen = 0
    for place, at in enumerate(targets.rows[:40].tolist()):
        game, ply = int(found.game[at]), int(found.ply[at])
        board = chess.Board()
        for packed in shard.plies[starts[game] : starts[game] + ply].tolist():
            board.push(slots.move(packed & (EN_PASSANT - 1), board))
        expected = said(models[names[targets.teacher[place]]], board if history else chess.Board(board.fen()))
        entries = slice(targets.indptr[place], targets.indptr[place + 1])
        held = dict(zip(targets.slots[entries].tolist(), probabilities(targets.roots[entries]).tolist(), strict=True))
        for slot, share in expected.items():
            within = share**0.5 / 255 + 1e-5 if slot in held else run.teaching.threshold  # half a step of the root
            assert held.get(slot, 0.0) == pytest.approx(share, abs=within)
            seen += slot in held
        assert sum(held.values()) + targets.left_out[place] / 255 == pytest.approx(1, abs=0.02)
    assert seen > 40


def test_killed_it_goes_on_and_makes_only_what_is_missing(tmp_path: Path, nets: Path) -> None:
    run = run_of(tmp_path)
    assert run.teaching is not None
    count = teacher.make_targets(run, nets)
    files = sorted(run.teaching.folder.glob("*.targets"))
    assert len(files) == 2 * len(list(run.data.folder.glob("train-*.shard")))
    whole = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:99])
    assert teacher.make_targets(run, nets) == count
    for file, (content, made) in whole.items():
        assert file.read_bytes() == content
        assert (file.stat().st_mtime_ns == made) == (file not in files[1:3])
    with pytest.raises(SystemExit, match="name another folder"):
        teacher.make_targets(replace(run, seed=run.seed + 1), nets)


def test_no_position_is_asked_about_twice_and_each_game_gives_its_share(tmp_path: Path, nets: Path) -> None:
    run = run_of(tmp_path)
    assert run.teaching is not None
    teacher.make_targets(run, nets)
    for shard in run.data.folder.glob("train-*.shard"):
        parts = [read_targets(teacher.target_file(run.teaching, shard, part)).rows for part in range(2)]
        rows = np.concatenate(parts)
        assert len(set(rows.tolist())) == len(rows)
        games = replay(read_shard(shard)).game
        assert np.bincount(games[parts[0]]).max() <= 3 * teacher.CAP + 1
        assert set(games[parts[0]]) == set(games)


def test_training_sees_the_targets_of_its_own_positions(tmp_path: Path, nets: Path) -> None:
    run = run_of(tmp_path)
    assert run.teaching is not None
    teacher.make_targets(run, nets)
    (run.teaching.folder / "train-00000.01.targets").write_bytes(b"gone")
    found = dataset.load(run.data, "train", run.seed, run.teaching)
    assert len(found.skipped) == 1
    assert found.targets is not None
    assert len(found.targets) == len(found)
    start = 0
    for file in sorted(run.teaching.folder.glob("*.targets")):
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
        dataset.load(run.data, "train", run.seed, run.teaching)


@given(st.floats(600, 2600), st.integers(0, 10**6))
def test_a_rating_between_two_nets_is_given_to_each_as_often_as_it_is_near(rating: float, seed: int) -> None:
    known = np.array([1100, 1200, 1400, 1500, 1600, 1800, 1900])
    draw = np.random.default_rng(seed).random(2000)
    asked = known[nearest.drawn(np.full(2000, rating), known, draw)] + 50  # the middle of a net's hundred ratings
    assert asked.mean() == pytest.approx(np.clip(rating, 1150, 1950), abs=12)
    assert len(set(asked)) <= 2
    one = known[nearest.nearest(np.array([rating]), known)[0]] + 50
    assert abs(one - rating) == np.abs(known + 50 - rating).min()


def test_a_byte_holds_a_probability_to_a_hundredth() -> None:
    share = np.linspace(0, 1, 5001)
    assert np.abs(probabilities(roots(share)) - share).max() < 0.004
    assert probabilities(roots(np.array([0.001])))[0] == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_a_corrupt_file_of_targets_is_an_error_that_names_it(damage: str, tmp_path: Path) -> None:
    made = Targets(
        np.arange(3, dtype=np.int32),
        np.zeros(3, np.uint8),
        np.array([1, 2, 1], np.uint16),
        np.zeros(3, np.uint8),
        np.arange(4, dtype=np.uint16),
        np.full(4, 255, np.uint8),
        {"shard": "x"},
    )
    file = tmp_path / "train-00003.00.targets"
    write_targets(file, made)
    assert read_targets(file).about == {"shard": "x"}
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :]
    file.write_bytes({"cut": whole[:middle], "flipped": flipped, "other": b"hello"}[damage])
    with pytest.raises(TargetsError, match=r"train-00003\.00\.targets"):
        read_targets(file)


def test_the_command_says_what_it_made(tmp_path: Path, nets: Path) -> None:
    run_of(tmp_path)
    file = tmp_path / "run.toml"
    games = json.dumps(str(tmp_path / "games.csv.zst"))
    text = f"[data]\nfolder = {json.dumps(str(tmp_path / 'shards'))}\ngames = [{games}]\n"
    file.write_text(text + f"[teaching]\nfolder = {json.dumps(str(tmp_path / 'made'))}\nper_game = 1\npasses = 1\n")
    command = [sys.executable, "-m", "training.teacher", str(file), "--teachers"]
    done = subprocess.run([*command, str(nets)], capture_output=True, text=True, check=True)
    assert "positions, " in done.stdout
    empty = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert empty.returncode == 1
    assert "movemask models import" in empty.stderr
    file.write_text(text)
    bare = subprocess.run([*command, str(nets)], capture_output=True, text=True, check=False)
    assert "[teaching]" in bare.stderr
