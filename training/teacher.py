"""Shards → targets, what Maia-3 expects in drawn positions: `python -m training.teacher RUN.toml --maia3 FOLDER`

FOLDER is what `training.maia3` made. The teacher sees the game so far and both players' ratings. Goes on where it was
killed: a file that is there and was made from the same shard and settings is done. Files are made pass by pass, so that
training may begin before all are there.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.encoding.vocabularies import vocabulary
from movemask.network.onnx import OnnxSession
from movemask.processes import end_with_parent
from training.config import Data, Run, Teaching, load_run
from training.dataset import ratings_of, trained_on
from training.history import Histories
from training.legal import board_of
from training.maia3 import RATINGS, TEACHER
from training.replay import Positions, replay
from training.shards import VOCABULARY, read_shard
from training.targets import Targets, TargetsError, digest_of, read_targets, roots, write_targets

BATCH = 16  # twice as fast as 64
KNOWN = (600, 2600)  # ratings that the teacher was trained on
QUIET, QUIETLY = (20, 80), 1.5  # plies that are drawn more often, and how much
WEIGHTS = ((0, 1.5), (1000, 1.0), (1800, 1.7), (2200, 2.5))  # how often, from which rating of the mover

Answer = tuple[NDArray[np.int64], NDArray[np.float32]]  # slots of the legal moves and their probabilities


@dataclass(frozen=True)
class Task:
    """One file to make."""

    shard: Path
    file: Path
    part: int  # the pass


class Teacher:
    """Maia-3, asked in batches."""

    def __init__(self, folder: Path) -> None:
        self.digest = digest_of(folder / TEACHER)
        self._session = OnnxSession(folder / TEACHER, threads=1)

    def answers(
        self, tokens: NDArray[np.float32], ratings: NDArray[np.integer], bitboards: NDArray[np.uint64]
    ) -> list[Answer]:
        """What it expects: tokens `[B, 64, 96]`, the mover's and the other's rating `[B, 2]`, bitboards `[B, 21]`."""
        clipped = np.clip(ratings, *KNOWN).astype(np.float32)
        feeds = {"tokens": tokens, **dict(zip(RATINGS, np.ascontiguousarray(clipped.T), strict=True))}
        (logits,) = self._session.run(feeds, ["logits_move"])
        theirs, ours = vocabulary("maia3-4352"), vocabulary(VOCABULARY)
        found = []
        for row, packed in zip(logits, bitboards, strict=True):
            board = board_of(packed)
            moves = list(board.generate_legal_moves())
            known = row[[theirs.slot(move, board) for move in moves]]
            weights = np.exp(known - known.max())
            found.append((np.array([ours.slot(move, board) for move in moves]), weights / weights.sum()))
        return found


def packed(rows: NDArray[np.int64], answers: list[Answer], threshold: float, about: dict[str, Any]) -> Targets:
    """The answers of those rows as targets: moves below the threshold are left out, but never the likeliest."""
    kept = [share >= min(threshold, share.max()) for _, share in answers]
    left_out = [share[~keep].sum() for (_, share), keep in zip(answers, kept, strict=True)]
    shares = [share[keep] for (_, share), keep in zip(answers, kept, strict=True)]
    slots = [slots[keep] for (slots, _), keep in zip(answers, kept, strict=True)]
    return Targets(
        rows.astype(np.int32),
        np.zeros(len(rows), np.uint8),
        np.array([len(part) for part in slots], np.uint16),
        np.round(255 * np.array(left_out)).astype(np.uint8),
        np.concatenate(slots).astype(np.uint16),
        roots(np.concatenate(shares)),
        about,
    )


def make_targets(run: Run, maia3: Path) -> int:
    """Makes the files that are missing; how many positions all of them hold."""
    teaching = _asked_for(run)
    teaching.folder.mkdir(parents=True, exist_ok=True)
    shards = sorted(run.data.folder.glob("train-?????.shard"))
    if not shards:
        raise SystemExit(f"{run.data.folder}: no shards; python -m training.data makes them")
    wanted = [Task(one, target_file(teaching, one, part), part) for part in range(teaching.passes) for one in shards]
    held = 0
    pool = ProcessPoolExecutor(teaching.processes, initializer=end_with_parent)
    with pool, tqdm(unit=" positions", desc="targets") as bar:
        found = [pool.submit(_made, run, task, maia3) for task in wanted]
        for number, done in enumerate(as_completed(found), 1):
            bar.total = int((held := held + done.result()) * len(wanted) / number)
            bar.update(done.result())
    return held


def target_file(teaching: Teaching, shard: Path, part: int) -> Path:
    """Where the targets of a shard's pass are."""
    return teaching.folder / f"{shard.stem}.{part:02}.targets"


def drawn_rows(
    positions: Positions,
    mover: NDArray[np.integer],
    data: Data,
    teaching: Teaching,
    part: int,
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    """The rows that pass `part` takes, none of which another pass takes; rising.

    Games are mostly those of players from 1400 to 1900, and their teacher has most to say in quiet positions: those of
    other players and from QUIET plies are taken more often.
    """
    starts, factors = zip(*WEIGHTS, strict=True)
    rate = teaching.asked * np.array(factors)[np.searchsorted(starts, mover, side="right") - 1]
    rate *= np.where((positions.ply >= QUIET[0]) & (positions.ply < QUIET[1]), QUIETLY, 1.0)
    trained = trained_on(positions, data, draw)
    place = draw.random(len(rate))
    return np.flatnonzero(trained & (place >= part * rate) & (place < (part + 1) * rate))


def _asked_for(run: Run) -> Teaching:
    if run.teaching is None:
        raise SystemExit("the run has no [teaching]: it says which positions a teacher is asked about")
    return run.teaching


def _made(run: Run, task: Task, maia3: Path) -> int:
    """Makes one file unless it is there; how many positions it holds."""
    teaching, teacher = _asked_for(run), _loaded(maia3)
    about = {
        "teacher": teacher.digest,
        "shard": digest_of(task.shard),
        "pass": task.part,
        "seed": run.seed,
        "asked": teaching.asked,
        "threshold": teaching.threshold,
        "opening": [run.data.opening_plies, run.data.opening_share],
    }
    if task.file.exists():
        try:
            there = read_targets(task.file)
        except TargetsError as error:
            print(f"{error}: made again")
        else:
            if there.about != about:
                raise SystemExit(f"{task.file}: made from another shard, teacher or settings: name another folder")
            return len(there)
    shard = read_shard(task.shard)
    positions = replay(shard)
    histories = Histories.of(positions, shard.games["plies"].astype(np.int64))
    ratings = np.stack(ratings_of(positions, shard.games, run.data), axis=1)
    draw = np.random.default_rng((run.seed, int(task.shard.stem.rpartition("-")[2])))
    rows = drawn_rows(positions, ratings[:, 0], run.data, teaching, task.part, draw)
    for other in teaching.folder.glob(f"{task.shard.stem}.*.targets"):
        if not other.name.split(".")[1].isdigit():  # not made by this run
            rows = np.setdiff1d(rows, read_targets(other).rows)
    answers: list[Answer] = []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        answers += teacher.answers(histories.tokens(some), ratings[some], positions.bitboards[some])
    write_targets(task.file, packed(rows, answers, teaching.threshold, about))
    return len(rows)


_loaded = cache(Teacher)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="shards -> what a teacher expects")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-4.toml")
    parser.add_argument("--maia3", type=Path, required=True, help="the folder that training.maia3 made")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    positions = make_targets(run, arguments.maia3)
    folder = _asked_for(run).folder
    size = sum(file.stat().st_size for file in folder.glob("*.targets"))
    print(f"{positions:,} positions, {size:,} bytes in {folder}, {size / max(positions, 1):.1f} a position")


if __name__ == "__main__":
    main()
