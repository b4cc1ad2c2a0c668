"""Games → shards: `python -m training.data RUN.toml`. Goes on where it was killed.

Games are split by a hash of their moves, so the split never moves. Each group of games becomes one shard per split;
a group is done when `progress.json` says so, and is made again from its start otherwise, into the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.parent import end_with_parent
from training.config import Data, load_run
from training.games import Record, Unwanted, parse, records
from training.shards import pack, write_shard

PROGRESS = "progress.json"
SPLITS = ("train", "validation", "test")
CHUNK = 256  # records handed to a process at once

Packed = tuple[str, tuple[object, ...], NDArray[np.uint16]]  # split, row, plies


def split_of(moves: str) -> str:
    """Two in a hundred games for validation, two for the test, by a hash of the moves in UCI."""
    bucket = int.from_bytes(hashlib.sha256(moves.encode()).digest()[:4], "big") % 100
    return "test" if bucket < 2 else "validation" if bucket < 4 else "train"


def make_shards(data: Data, limit: int | None = None) -> dict[str, int]:
    """Writes the shards of `data.games` and returns the counts that `progress.json` ends with."""
    data.folder.mkdir(parents=True, exist_ok=True)
    done, counts = _progress(data)
    fresh = islice(chain.from_iterable(records(file) for file in data.games), done, limit)
    with (
        ProcessPoolExecutor(data.processes, initializer=end_with_parent) as pool,
        tqdm(initial=done, total=limit, unit=" games") as bar,
    ):
        for group in _groups(fresh, data.games_per_shard):
            number = done // data.games_per_shard
            rows: dict[str, list[Packed]] = {split: [] for split in SPLITS}
            chunks = list(_groups(group, CHUNK))
            for packed, unwanted in pool.map(partial(_packed, data), chunks):
                counts.update(unwanted)
                for item in packed:
                    rows[item[0]].append(item)
            for split, items in rows.items():
                write_shard(data.folder / f"{split}-{number:05}.shard", [i[1] for i in items], [i[2] for i in items])
                counts[f"{split} games"] += len(items)
                counts[f"{split} plies"] += sum(len(i[2]) for i in items)
            done += len(group)
            _keep(data, done, counts)
            bar.update(len(group))
    return dict(counts)


def _packed(data: Data, chunk: list[Record]) -> tuple[list[Packed], Counter[str]]:
    packed: list[Packed] = []
    unwanted: Counter[str] = Counter()
    for record in chunk:
        try:
            game = parse(record, data)
        except Unwanted as reason:
            unwanted[f"left out: {reason}"] += 1
        else:
            packed.append((split_of(" ".join(move.uci() for move in game.moves)), *pack(game)))
    return packed, unwanted


def _groups(items: Iterable[Record], size: int) -> Iterator[list[Record]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def _progress(data: Data) -> tuple[int, Counter[str]]:
    """How many records are done, and the counts so far; refuses a folder that other data was begun in."""
    file = data.folder / PROGRESS
    if not file.exists():
        return 0, Counter()
    state = json.loads(file.read_text())
    if state["data"] != _identity(data):
        raise SystemExit(f"{data.folder} holds shards made from other games or settings: name another data.folder")
    return int(state["records"]), Counter(state["counts"])


def _keep(data: Data, done: int, counts: Counter[str]) -> None:
    file = data.folder / PROGRESS
    half = file.with_suffix(".part")
    half.write_text(json.dumps({"records": done, "counts": counts, "data": _identity(data)}, indent=1))
    os.replace(half, file)


def _identity(data: Data) -> str:
    """What decides which games go where."""
    files = [(file.name, file.stat().st_size) for file in data.games]
    return repr((files, data.source_prefixes, data.left_out_sources, data.shortest_seconds, data.games_per_shard))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="games -> shards")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml")
    parser.add_argument("--limit", type=int, help="read only this many games")
    arguments = parser.parse_args()
    data = load_run(arguments.run).data
    for name, count in sorted(make_shards(data, arguments.limit).items()):
        print(f"{count:>12,} {name}")
    size = sum(file.stat().st_size for file in data.folder.glob("*.shard"))
    print(f"{size:>12,} bytes of shards in {data.folder}")


if __name__ == "__main__":
    main()
