"""Targets: for drawn positions of a shard, the moves that a teacher expects and how much of each, packed.

A slot takes two bytes, its probability one (the root of it in 255 steps, within 0.004), and slots below a threshold are
left out. A file is a zstandard frame with a checksum, written beside its place and renamed into
it; it names the shard by its digest, the teachers by theirs, and everything that decided what is in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

LARGEST = 1 << 28  # bytes that a file may unpack to


class TargetsError(Exception):
    """A file of targets that cannot be read; the text names it."""


@dataclass(frozen=True)
class Targets:
    """`N` positions of a shard and `E` entries, those of a position one after another."""

    rows: NDArray[np.int32]  # [N], of the shard's replay
    teacher: NDArray[np.uint8]  # [N], of `about["teachers"]`
    counts: NDArray[np.uint16]  # [N], entries of each position
    left_out: NDArray[np.uint8]  # [N], probability of the slots below the threshold, in 255 steps
    slots: NDArray[np.uint16]  # [E], movemask-1880
    roots: NDArray[np.uint8]  # [E], 255 times the root of the probability
    about: dict[str, Any]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """int64 `[N + 1]`: the entries of position `i` are those from `indptr[i]` to `indptr[i + 1]`."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])

    def padded(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Slots and probabilities of those positions `[B, K]`, scaled to a sum of 1; where one has fewer, zeros."""
        counts = self.counts[places].astype(np.int64)[:, None]
        steps = np.arange(counts.max(initial=0))
        there = steps < counts
        entries = np.where(there, self.indptr[places][:, None] + steps, 0)
        weights = np.where(there, probabilities(self.roots[entries]), 0)
        return np.where(there, self.slots[entries], 0).astype(np.int64), weights / weights.sum(1, keepdims=True)


def roots(probability: NDArray[np.floating]) -> NDArray[np.uint8]:
    """As a byte."""
    return np.asarray(np.round(255 * np.sqrt(probability)), dtype=np.uint8)


def probabilities(root: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What `roots` packed."""
    return np.asarray(np.square(root.astype(np.float32) / np.float32(255)))


def digest_of(file: Path) -> str:
    """SHA-256 of a file, as targets name their shard."""
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()


def joined(parts: Sequence[Targets]) -> Targets:
    """The positions of all, one after the other; `about` is the first one's."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    return Targets(**arrays, about=parts[0].about)


_ARRAYS = ("rows", "teacher", "counts", "left_out", "slots", "roots")


def write_targets(file: Path, targets: Targets) -> None:
    """Writes a file whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, about=json.dumps(targets.about), **{name: getattr(targets, name) for name in _ARRAYS})
    half = file.with_suffix(".part")
    half.write_bytes(zstandard.ZstdCompressor(level=6, write_checksum=True).compress(buffer.getvalue()))
    os.replace(half, file)


def read_targets(file: Path) -> Targets:
    """Raises TargetsError for a file that is cut off, changed or something else."""
    try:
        unpacked = zstandard.ZstdDecompressor().decompress(file.read_bytes(), max_output_size=LARGEST)
        with np.load(io.BytesIO(unpacked), allow_pickle=False) as arrays:
            found = Targets(**{name: arrays[name] for name in _ARRAYS}, about=json.loads(str(arrays["about"])))
    except (OSError, ValueError, KeyError, EOFError, zstandard.ZstdError) as error:
        raise TargetsError(f"{file}: not a whole file of targets: {error}") from None
    if len(found.rows) != len(found.counts) or not found.counts.sum() == len(found.slots) == len(found.roots):
        raise TargetsError(f"{file}: its positions and its entries do not agree")
    return found
