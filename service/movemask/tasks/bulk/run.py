"""Runs an audit of files: worker processes write a part per chunk, so that a stopped audit can be resumed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from movemask.errors import AuditError
from movemask.inference.model import Model
from movemask.inference.registry import open_model
from movemask.processes import end_with_parent
from movemask.tasks.bulk.rows import rows, schema
from movemask.tasks.bulk.samples import Choice, Skipped, samples
from movemask.tasks.bulk.sources import Chunk

#: In the output folder while the audit runs: the folder of parts, and the options that the parts belong to.
PARTS, ASKED = "parts", "asked.json"

#: The finished table.
POSITIONS = "positions.parquet"

_SKIPPED, _DIGEST, _COUNT = b"left_out", b"chunk", b"positions"


@dataclass(frozen=True, slots=True)
class Job:
    """An audit: contract files of the networks, which positions, and the output folder."""

    models: tuple[Path, ...]
    choice: Choice
    out: Path

    def asked(self, digests: dict[str, str]) -> dict[str, Any]:
        """What two runs must have in common for the parts of one to be used by the other."""
        return {"version": 1, "models": digests, "choice": json.loads(json.dumps(asdict(self.choice)))}


@dataclass(frozen=True, slots=True)
class PartDone:
    """A finished chunk; `fresh` unless an earlier run finished it, `size` as of the chunk."""

    index: int
    positions: int
    fresh: bool
    size: int


def begin(job: Job, digests: dict[str, str], *, restart: bool) -> bool:
    """Prepares the output folder; True if it holds parts of an earlier run. Raises AuditError if it holds anything
    else."""
    out, asked = job.out, job.asked(digests)
    ours = {PARTS, ASKED, POSITIONS, "summary.json", "report.html"}
    if out.is_dir():
        others = sorted(path.name for path in out.iterdir() if path.name not in ours)
        if others:
            raise AuditError(f"{out}: holds something else ({others[0]}); give --out another folder")
        if restart:
            _remove_audit(out)
        elif (out / POSITIONS).exists():
            raise AuditError(f"{out}: holds a finished audit; give --out another folder, or --restart to do it again")
        elif (out / ASKED).exists() and _read_asked(out / ASKED) != asked:
            raise AuditError(
                f"{out}: was begun with other networks or options; give --out another folder, "
                "or --restart to begin anew"
            )
    (out / PARTS).mkdir(parents=True, exist_ok=True)
    (out / ASKED).write_text(json.dumps(asked, indent=1))
    return any((out / PARTS).iterdir())


def run(job: Job, chunks: Iterable[Chunk], jobs: int, done: Callable[[PartDone], None]) -> int:
    """Evaluates all chunks, with a bounded number in flight; `done` is called for each. Returns their number.

    Raises AuditError if a worker dies, and whatever a worker raises.
    """
    context = get_context("spawn")
    count = 0
    with ProcessPoolExecutor(jobs, context, _start) as pool:
        pending: set[Future[PartDone]] = set()
        try:
            for chunk in chunks:
                count += 1
                earlier = _part_of(job.out, chunk)
                if earlier is not None:
                    done(earlier)
                    continue
                pending.add(pool.submit(_work, job, chunk))
                while len(pending) >= 2 * jobs:
                    pending = _collected(pending, done)
            while pending:
                pending = _collected(pending, done)
        except BrokenProcessPool:
            raise AuditError(
                "a worker process died, perhaps for want of memory: try fewer with --jobs; "
                "the same command goes on from here"
            ) from None
        except BaseException:
            for future in pending:
                future.cancel()
            raise
    return count


def _read_asked(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError:  # cut short by a crash
        return None


def _collected(pending: set[Future[PartDone]], done: Callable[[PartDone], None]) -> set[Future[PartDone]]:
    """Waits for at least one; returns those still running."""
    finished, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in finished:
        done(future.result())
    return rest


def parts(out: Path, count: int) -> Iterator[Path]:
    """The files of the parts in order."""
    for index in range(count):
        yield _part_file(out, index)


def merge(out: Path, count: int, kinds: tuple[str, ...]) -> Skipped:
    """Joins the parts into one Parquet file, one part at a time, and deletes them. Returns what was skipped in all."""
    skipped = Skipped()
    wanted = schema(kinds)
    partial = out / f"{POSITIONS}.partial"
    with pq.ParquetWriter(partial, wanted, compression="zstd") as writer:
        for file in parts(out, count):
            with pq.ParquetFile(file) as part:
                skipped.merge(_skipped_in(part.schema_arrow.metadata))
                table = part.read().cast(wanted)
            if table.num_rows:
                writer.write_table(table)
    os.replace(partial, out / POSITIONS)
    _remove_parts(out)
    return skipped


def _remove_parts(out: Path) -> None:
    for file in (out / PARTS).iterdir():
        file.unlink()
    (out / PARTS).rmdir()


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and stops the workers
    end_with_parent()


@cache
def _opened(contract: Path) -> Model:
    """A network, opened once per worker, with one thread: there is a worker per core."""
    return open_model(contract, 1)


def _work(job: Job, chunk: Chunk) -> PartDone:
    skipped = Skipped()
    positions = list(samples(chunk, job.choice, skipped))
    table = pa.concat_tables([rows(model, positions, job.choice, skipped) for model in map(_opened, job.models)])
    file = _part_file(job.out, chunk.index)
    partial = file.with_suffix(".partial")
    entry = json.dumps({"reasons": skipped.reasons, "examples": skipped.examples})
    metadata = {_DIGEST: chunk.digest, _SKIPPED: entry, _COUNT: str(len(positions))}
    pq.write_table(table.replace_schema_metadata(metadata), partial, compression="zstd")
    os.replace(partial, file)
    return PartDone(chunk.index, len(positions), fresh=True, size=chunk.size)


def _part_file(out: Path, index: int) -> Path:
    return out / PARTS / f"{index:08}.parquet"


def _part_of(out: Path, chunk: Chunk) -> PartDone | None:
    """The part of an earlier run with the same content; None if there is none."""
    file = _part_file(out, chunk.index)
    if not file.exists():
        return None
    metadata = pq.read_schema(file).metadata or {}
    if metadata.get(_DIGEST) != chunk.digest.encode():
        return None
    return PartDone(chunk.index, int(metadata[_COUNT]), fresh=False, size=chunk.size)


def _skipped_in(metadata: dict[bytes, bytes]) -> Skipped:
    entry = json.loads(metadata[_SKIPPED])
    return Skipped(Counter(entry["reasons"]), entry["examples"])


def _remove_audit(out: Path) -> None:
    """Removes what an audit wrote, and only that."""
    if (out / PARTS).is_dir():
        _remove_parts(out)
    for name in (ASKED, POSITIONS, "summary.json", "report.html"):
        (out / name).unlink(missing_ok=True)
