"""Shards → targets, what Maia-1 nets expect in drawn positions: `python -m training.teacher RUN.toml --teachers FOLDER`

FOLDER holds the nets as `movemask models import` left them, named by their rating (`maia-1500`). A position is given to
one of the two nets nearest to the mover's rating, drawn so that on average the two are mixed by how near they are; the
net sees the game so far, the student will not. Goes on where it was killed: a file that is there and was made from the
same shard, nets and settings is done. Files are made pass by pass, so that training may begin before all are there.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.encoding.vocabularies import vocabulary
from movemask.network.model import Model
from movemask.network.registry import load_registry
from training.config import Data, Run, Teaching, load_run
from training.dataset import ratings_of, trained_on
from training.history import Histories
from training.nearest import drawn, nets_by_rating
from training.replay import PAWN, replay
from training.shards import VOCABULARY, Shard, read_shard
from training.targets import Targets, TargetsError, digest_of, read_targets, roots, write_targets

BATCH = 64
FIRST_PROMOTION = 1792  # in both vocabularies: the from-to slots before it are the same
BAND, CAP = 100, 3.0  # ratings that are balanced, and the most that a game's positions are multiplied by


@dataclass(frozen=True)
class Task:
    """One file to make."""

    shard: Path
    file: Path
    part: int  # the pass


def make_targets(run: Run, teachers: Path) -> int:
    """Makes the files that are missing; how many positions all of them hold."""
    teaching = _asked_for(run)
    names = nets_by_rating(teachers)
    teaching.folder.mkdir(parents=True, exist_ok=True)
    shards = sorted(run.data.folder.glob("train-*.shard"))
    wanted = [Task(one, target_file(teaching, one, part), part) for part in range(teaching.passes) for one in shards]
    factors = balance(run.data)
    held = 0
    with ProcessPoolExecutor(teaching.processes) as pool, tqdm(unit=" positions", desc="targets") as bar:
        found = [pool.submit(_made, run, task, teachers, names, factors) for task in wanted]
        for number, done in enumerate(as_completed(found), 1):
            bar.total = int((held := held + done.result()) * len(wanted) / number)
            bar.update(done.result())
    return held


def target_file(teaching: Teaching, shard: Path, part: int) -> Path:
    """Where the targets of a shard's pass are."""
    return teaching.folder / f"{shard.stem}.{part:02}.targets"


def students_slots(slots: NDArray[np.integer], pawn: NDArray[np.bool_]) -> NDArray[np.int64]:
    """lc0-1858 slots → movemask-1880 slots, `[E]`; `pawn` says whether a pawn of ours stands on the from-square.

    The from-to slots are the same, castling included (the king takes the rook in both); promotions to queen, rook and
    bishop are three to a pair of squares there and four here; a pawn that reaches the last rank without a letter is the
    knight there.
    """
    known = _KNIGHT[slots]
    pair, piece = np.divmod(slots - FIRST_PROMOTION, 3)
    written = np.where(slots >= FIRST_PROMOTION, FIRST_PROMOTION + 4 * pair + piece, slots)
    return np.where((known >= 0) & pawn, known, written)


def drawn_rows(
    shard: Shard,
    found: Histories,
    data: Data,
    teaching: Teaching,
    part: int,
    seed: tuple[int, ...],
    factors: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The rows that pass `part` takes: so many of each game, none of which another pass takes; rising."""
    positions = found.positions
    draw = np.random.default_rng((*seed, 1))
    kept = np.flatnonzero(trained_on(positions, data, np.random.default_rng(seed)))
    order = kept[np.lexsort((draw.random(len(kept)), positions.game[kept]))]
    game = positions.game[order]
    place = np.arange(len(order)) - np.searchsorted(game, game)  # within the game
    share = teaching.per_game * factors[_band(shard.games["white_elo"], shard.games["black_elo"])]
    many = np.floor(share + draw.random(len(share))).astype(np.int64)[game]
    return np.sort(order[(place >= part * many) & (place < (part + 1) * many)])


def balance(data: Data) -> NDArray[np.float64]:
    """By band of a hundred ratings, what a game's positions are multiplied by: the root of how much rarer it is than
    the median band, from 1 / CAP to CAP."""
    files = sorted(data.folder.glob("train-*.shard"))
    if not files:
        raise SystemExit(f"{data.folder}: no shards; python -m training.data makes them")
    bands = np.concatenate(
        [_band(games["white_elo"], games["black_elo"]) for games in (read_shard(f).games for f in files)]
    )
    count = np.bincount(bands, minlength=_BANDS)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.sqrt(np.median(count[bands]) / count), 1 / CAP, CAP))


_BANDS = 4000 // BAND


def _band(white: NDArray[np.integer], black: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.asarray(np.clip((white.astype(np.int64) + black) // (2 * BAND), 0, _BANDS - 1))


def _asked_for(run: Run) -> Teaching:
    if run.teaching is None:
        raise SystemExit("the run has no [teaching]: it says which positions a teacher is asked about")
    return run.teaching


def _made(run: Run, task: Task, teachers: Path, names: dict[int, str], factors: NDArray[np.float64]) -> int:
    """Makes one file unless it is there; how many positions it holds."""
    models = [_loaded(teachers, name) for name in names.values()]
    about = _about(run, task, models)
    if task.file.exists():
        try:
            there = read_targets(task.file)
        except TargetsError as error:
            print(f"{error}: made again")
        else:
            if there.about != about:
                raise SystemExit(f"{task.file}: made from another shard, other nets or settings: name another folder")
            return len(there)
    shard = read_shard(task.shard)
    positions = replay(shard)
    found = Histories.of(positions, shard.games["plies"].astype(np.int64))
    number = int(task.shard.stem.rpartition("-")[2])
    rows = drawn_rows(shard, found, run.data, _asked_for(run), task.part, (run.seed, number), factors)
    targets = asked(
        models, list(names), shard, found, rows, run, about, np.random.default_rng((run.seed, number, task.part))
    )
    write_targets(task.file, targets)
    return len(targets)


def asked(
    models: list[Model],
    known: list[int],
    shard: Shard,
    found: Histories,
    rows: NDArray[np.int64],
    run: Run,
    about: dict[str, Any],
    draw: np.random.Generator,
) -> Targets:
    """What the teachers expect in those rows."""
    teaching = _asked_for(run)
    mover, _ = ratings_of(found.positions, shard.games, run.data)
    teacher = drawn(mover[rows].astype(float), np.array(known), draw.random(len(rows)))
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
    for number, model in enumerate(models):
        mine = np.flatnonzero(teacher == number)
        for start in range(0, len(mine), BATCH):
            places = mine[start : start + BATCH]
            probability = expected(model, found.planes(rows[places], history=teaching.history))
            enough = np.minimum(teaching.threshold, probability.max(axis=1, keepdims=True))
            place, slot = np.nonzero(probability >= enough)
            source = _SOURCES[slot]
            pawn = found.positions.bitboards[rows[places[place]], PAWN] >> source & np.uint64(1) != 0
            parts.append((places[place], students_slots(slot, pawn), probability[place, slot]))
    place, slot, weight = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(place, kind="stable")
    sums = np.bincount(place, weights=weight, minlength=len(rows))
    return Targets(
        rows.astype(np.int32),
        teacher.astype(np.uint8),
        np.bincount(place, minlength=len(rows)).astype(np.uint16),
        np.round(255 * np.clip(1 - sums, 0, 1)).astype(np.uint8),
        slot[order].astype(np.uint16),
        roots(weight[order]),
        about,
    )


def expected(model: Model, planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 `[B, A]`: the plain softmax over all slots of a net."""
    terms = model.contract
    (logits,) = model.session.run({terms.inputs.planes: planes}, [terms.outputs.logits])
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability: NDArray[np.float32] = shifted / shifted.sum(axis=1, keepdims=True)
    return probability


@cache
def _loaded(folder: Path, name: str) -> Model:
    model = load_registry(folder, name, threads=1).get(name)
    terms = model.contract.contract
    if (terms.planes, terms.vocabulary) != ("lc0-112", "lc0-1858"):
        raise SystemExit(f"{folder / name}.toml: a teacher has the planes lc0-112 and the vocabulary lc0-1858")
    return model


def _about(run: Run, task: Task, models: list[Model]) -> dict[str, Any]:
    """What decides the content of a file, as JSON gives it back."""
    teaching = asdict(_asked_for(run))
    kept = {name: teaching[name] for name in ("history", "threshold", "per_game")}
    return {
        "shard": digest_of(task.shard),
        "teachers": {model.name: model.digest for model in models},
        "pass": task.part,
        "seed": run.seed,
        "opening": [run.data.opening_plies, run.data.opening_share],
        **kept,
    }


def _knights() -> NDArray[np.int64]:
    """For each lc0-1858 slot the knight promotion between its squares in movemask-1880, or -1."""
    slots = {name: slot for slot, name in enumerate(vocabulary(VOCABULARY).names())}
    return np.array([slots.get(name + "n", -1) for name in vocabulary("lc0-1858").names()], dtype=np.int64)


_KNIGHT = _knights()
_SOURCES = vocabulary("lc0-1858").columns()[0].astype(np.uint64)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="shards -> what teachers expect")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-3.toml")
    parser.add_argument("--teachers", type=Path, required=True, help="a models folder of imported Maia-1 nets")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    positions = make_targets(run, arguments.teachers)
    folder = _asked_for(run).folder
    size = sum(file.stat().st_size for file in folder.glob("*.targets"))
    print(f"{positions:,} positions, {size:,} bytes in {folder}, {size / max(positions, 1):.1f} a position")


if __name__ == "__main__":
    main()
