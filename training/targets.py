"""Ready policies of the teacher: for some positions of a shard, the moves it expects and their probabilities.

A file belongs to one shard and names it by its digest. It is a zstandard frame with a checksum around numpy's own
format. A slot takes two bytes and its probability one: the square root in 255 steps, exact to 0.004. Slots below a
threshold are left out; how much probability they have together is kept.

A ready policy costs no run of the teacher, but it has neither the teacher's states nor its value, and the teacher
always saw the game before the position.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from training.config import Data
from training.dataset import Dataset

MAX_UNPACKED_BYTES = 1 << 28  # bytes that a file may unpack to
TINY = 1e-6  # probability of all left-out slots together, at least: a slot of nothing has no logarithm


class TargetsError(Exception):
    """A file of targets that cannot be read; the text names it."""


@dataclass(frozen=True)
class Targets:
    """`N` positions with `E` entries, those of a position one after another."""

    rows: NDArray[np.int64]  # [N], of the file's shard, and of the dataset once they are `ready`
    indptr: NDArray[np.int64]  # [N + 1]: the entries of position i are indptr[i] to indptr[i + 1]
    left_out: NDArray[np.uint8]  # [N], probability of the slots below the threshold, in 255 steps
    slots: NDArray[np.uint16]  # [E], of movemask-1880
    roots: NDArray[np.uint8]  # [E], 255 times the square root of the probability
    skipped: Counter[str] = field(default_factory=Counter)  # files that were not used, by reason

    def __len__(self) -> int:
        return len(self.rows)

    def logits(self, places: NDArray[np.int64], legal: NDArray[np.bool_]) -> NDArray[np.float32]:
        """float32 `[B, A]`, logarithms of the probabilities at these `places` of the targets, for `legal` `[B, A]`.

        The legal slots that were left out share what they have together equally; illegal slots are 0.
        """
        counts = self.indptr[places + 1] - self.indptr[places]
        row = np.repeat(np.arange(len(places)), counts)
        entry = np.concatenate([np.arange(self.indptr[place], self.indptr[place + 1]) for place in places])
        listed = np.zeros(legal.shape, dtype=bool)
        listed[row, self.slots[entry]] = True
        others = (legal & ~listed).sum(1).clip(min=1)
        share = np.maximum(self.left_out[places] / np.float32(255), TINY) / others
        result = np.where(legal, np.log(share, dtype=np.float32)[:, None], np.float32(0))
        result[row, self.slots[entry]] = 2 * np.log(self.roots[entry].clip(min=1) / np.float32(255))
        return np.asarray(result, dtype=np.float32)


def ready(folder: Path, dataset: Dataset, data: Data) -> Targets:
    """The targets in `folder` for the shards of a training dataset, their rows those of the dataset.

    Files for other shards, and files that cannot be read, are left out and counted. Leaves the program if none fits.
    """
    parts: list[Targets] = []
    skipped: Counter[str] = Counter()
    for file in sorted(folder.glob("*.targets")):
        shard = data.folder / f"{file.name.split('.')[0]}.shard"
        try:
            about, targets = read_targets(file)
        except TargetsError as error:
            skipped[str(error)] += 1
            continue
        if shard.name not in dataset.places or about.get("shard") != _digest(shard):
            skipped[f"{file}: made for another {shard.name}"] += 1
            continue
        parts.append(Targets(dataset.places[shard.name][targets.rows], *_without_rows(targets)))
    if not parts:
        reasons = "".join(f"\n{reason}" for reason in skipped)
        raise SystemExit(f"{folder}: no targets for the shards of {data.folder}{reasons}")
    ends = np.cumsum([0] + [len(part.slots) for part in parts])
    starts = [part.indptr[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return Targets(
        np.concatenate([part.rows for part in parts]).astype(np.int64),
        np.concatenate([*starts, ends[-1:]]),
        np.concatenate([part.left_out for part in parts]),
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.roots for part in parts]),
        skipped,
    )


def read_targets(file: Path) -> tuple[dict[str, object], Targets]:
    """What the file says of itself, and its targets. Raises TargetsError if it is cut off or something else."""
    try:
        unpacked = zstandard.ZstdDecompressor().decompress(file.read_bytes(), max_output_size=MAX_UNPACKED_BYTES)
        with np.load(io.BytesIO(unpacked), allow_pickle=False) as arrays:
            rows, counts, left_out, slots, roots = (
                arrays[name] for name in ("rows", "counts", "left_out", "slots", "roots")
            )
            about = json.loads(str(arrays["about"]))
    except (OSError, ValueError, KeyError, EOFError, zstandard.ZstdError) as error:
        raise TargetsError(f"{file}: not a whole file of targets: {error}") from None
    if not len(rows) == len(counts) == len(left_out) or not counts.sum() == len(slots) == len(roots):
        raise TargetsError(f"{file}: its positions and its entries do not agree")
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return about, Targets(rows.astype(np.int64), indptr, left_out, slots, roots)


def _without_rows(
    targets: Targets,
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint8]]:
    return targets.indptr, targets.left_out, targets.slots, targets.roots


def _digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
