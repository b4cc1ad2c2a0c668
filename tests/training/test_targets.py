"""Ready policies of the teacher, and the positions they belong to."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from movemask.encoding.vocabularies import vocabulary
from tests.training.test_data import csv_file, data_of, row
from training import dataset
from training.config import Data
from training.data import make_shards
from training.replay import replay
from training.shards import read_shard
from training.targets import TargetsError, read_targets, ready

TARGETS = Path(__file__).parents[3] / "shared/maia3/targets"


def made(folder: Path, shard: Path, rows: list[int], slots: list[int], shares: list[float], left: list[float]) -> Path:
    """A file of targets in which every position has one listed slot."""
    file = folder / f"{shard.stem}.teacher.targets"
    about = {"shard": "sha256:" + hashlib.sha256(shard.read_bytes()).hexdigest()}
    buffer = io.BytesIO()
    np.savez(
        buffer,
        about=json.dumps(about),
        rows=np.array(rows, dtype=np.int32),
        teacher=np.zeros(len(rows), dtype=np.uint8),
        counts=np.ones(len(rows), dtype=np.uint16),
        left_out=np.round(255 * np.array(left)).astype(np.uint8),
        slots=np.array(slots, dtype=np.uint16),
        roots=np.round(255 * np.sqrt(shares)).astype(np.uint8),
    )
    file.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(buffer.getvalue()))
    return file


@pytest.fixture
def data(tmp_path: Path) -> Data:
    data = data_of(tmp_path, csv_file(tmp_path, [row(number) for number in range(60)]))
    make_shards(data)
    return data


def test_ready_policy_matches_position_and_sums_to_1(data: Data, tmp_path: Path) -> None:
    shards = sorted(data.folder.glob("train-*.shard"))
    assert len(shards) > 1
    shard = shards[1]  # its rows are behind those of another shard
    replayed = replay(read_shard(shard))
    rows = [3, len(replayed.slot) - 1, 0]
    played = [int(replayed.slot[number]) for number in rows]
    made(tmp_path, shard, rows, played, [0.9, 0.64, 0.25], [0.1, 0.36, 0.75])
    loaded = dataset.load(data, "train")
    targets = ready(tmp_path, loaded, data)
    assert loaded.slot[targets.rows].tolist() == played
    assert (loaded.bitboards[targets.rows] == replayed.bitboards[rows]).all()
    legal: NDArray[np.bool_] = np.zeros((2, len(vocabulary("movemask-1880"))), dtype=bool)
    legal[0, [played[2], 7, 8, 9]] = legal[1, [played[1], 11]] = True
    logits = targets.logits(np.array([2, 1]), legal)
    shares = np.where(legal, np.exp(logits), 0)
    np.testing.assert_allclose(shares[0, [played[2], 7, 8, 9]], [0.25, 0.25, 0.25, 0.25], atol=0.005)
    np.testing.assert_allclose(shares[1, [played[1], 11]], [0.64, 0.36], atol=0.005)
    assert (logits[~legal] == 0).all()


def test_targets_of_other_shards_are_skipped(data: Data, tmp_path: Path) -> None:
    shard = min(data.folder.glob("train-*.shard"))
    file = made(tmp_path, shard, [0], [5], [1.0], [0.0])
    shard.write_bytes(max(data.folder.glob("train-*.shard")).read_bytes())
    loaded = dataset.load(data, "train")
    with pytest.raises(SystemExit, match=f"{file}: made for another {shard.name}"):
        ready(tmp_path, loaded, data)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TargetsError, match="not a whole file of targets"):
        read_targets(file)
    with pytest.raises(SystemExit, match="not a whole file of targets"):
        ready(tmp_path, loaded, data)


@pytest.mark.skipif(not TARGETS.is_dir(), reason="the teacher's ready policies are not here (shared/maia3/targets)")
def test_teacher_files_sum_to_1() -> None:
    _, targets = read_targets(min(TARGETS.glob("*.targets")))
    assert len(targets) == len(targets.left_out) == len(targets.indptr) - 1
    assert targets.indptr[-1] == len(targets.slots) == len(targets.roots)
    shares = np.square(targets.roots / 255)
    sums = np.add.reduceat(shares, targets.indptr[:-1]) + targets.left_out / 255
    assert np.abs(sums - 1).max() < 0.05
    assert targets.slots.max() < len(vocabulary("movemask-1880"))
