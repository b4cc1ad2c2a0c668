"""Runs an audit of files: chunks to worker processes, each writing a part, so that what was done stays done."""

from __future__ import annotations

import json
import os
import signal
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
from movemask.tasks.bulk.rows import Choice, LeftOut, rows, samples, schema
from movemask.tasks.bulk.sources import Chunk

#: What an output folder holds while the audit runs, and what is kept of how it was asked for.
PARTS, ASKED = "parts", "asked.json"

#: What it holds when it is done.
POSITIONS = "positions.parquet"

_LEFT_OUT, _DIGEST, _COUNT = b"left_out", b"chunk", b"positions"


@dataclass(frozen=True, slots=True)
class Job:
    """An audit: networks by their contract files, what is audited, and where it is written."""

    models: tuple[Path, ...]
    choice: Choice
    out: Path

    def asked(self, digests: dict[str, str]) -> dict[str, Any]:
        """What must be the same for parts of two runs to belong together."""
        return {"version": 1, "models": digests, "choice": json.loads(json.dumps(asdict(self.choice)))}


@dataclass(frozen=True, slots=True)
class PartDone:
    """A chunk that is done; `fresh` if it was done now and not by an earlier run, `size` as the chunk's."""

    index: int
    positions: int
    fresh: bool
    size: int


def begin(job: Job, digests: dict[str, str], *, restart: bool) -> bool:
    """Makes the output folder ready; True if parts of an earlier run are there. Raises AuditError for a folder that
    holds something else."""
    out, asked = job.out, job.asked(digests)
    ours = {PARTS, ASKED, POSITIONS, "summary.json", "report.html"}
    if out.is_dir():
        others = sorted(path.name for path in out.iterdir() if path.name not in ours)
        if others:
            raise AuditError(f"{out}: holds something else ({others[0]}); give --out another folder")
        if restart:
            _emptied(out)
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
    """Evaluates all chunks, at most a few ahead of the slowest; `done` is told of each. How many there were.

    Raises AuditError if a worker dies, and what a worker raises.
    """
    context = get_context("spawn")
    count = 0
    with ProcessPoolExecutor(jobs, context, _start) as pool:
        pending: set[Future[PartDone]] = set()
        try:
            for chunk in chunks:
                count += 1
                known = _part_of(job.out, chunk)
                if known is not None:
                    done(known)
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
    """Waits for one at least; those that are still under way."""
    finished, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in finished:
        done(future.result())
    return rest


def parts(out: Path, count: int) -> Iterator[Path]:
    """The files of the parts in order."""
    for index in range(count):
        yield _part_file(out, index)


def merge(out: Path, count: int, kinds: tuple[str, ...]) -> LeftOut:
    """Joins the parts into one Parquet file, a part at a time, and drops them; what was left out, of them all."""
    left_out = LeftOut()
    wanted = schema(kinds)
    partial = out / f"{POSITIONS}.partial"
    with pq.ParquetWriter(partial, wanted, compression="zstd") as writer:
        for file in parts(out, count):
            with pq.ParquetFile(file) as part:
                left_out.merge(_left_out_of(part.schema_arrow.metadata))
                table = part.read().cast(wanted)
            if table.num_rows:
                writer.write_table(table)
    os.replace(partial, out / POSITIONS)
    for file in (out / PARTS).iterdir():
        file.unlink()
    (out / PARTS).rmdir()
    return left_out


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends the workers in order
    end_with_parent()


@cache
def _opened(contract: Path) -> Model:
    """A network, opened once in each worker, on one thread: there is a worker for each core."""
    return open_model(contract, 1)


def _work(job: Job, chunk: Chunk) -> PartDone:
    left_out = LeftOut()
    found = list(samples(chunk, job.choice, left_out))
    table = pa.concat_tables([rows(model, found, job.choice, left_out) for model in map(_opened, job.models)])
    file = _part_file(job.out, chunk.index)
    partial = file.with_suffix(".partial")
    told = json.dumps({"reasons": left_out.reasons, "examples": left_out.examples})
    metadata = {_DIGEST: chunk.digest, _LEFT_OUT: told, _COUNT: str(len(found))}
    pq.write_table(table.replace_schema_metadata(metadata), partial, compression="zstd")
    os.replace(partial, file)
    return PartDone(chunk.index, len(found), fresh=True, size=chunk.size)


def _part_file(out: Path, index: int) -> Path:
    return out / PARTS / f"{index:08}.parquet"


def _part_of(out: Path, chunk: Chunk) -> PartDone | None:
    """What an earlier run has of this chunk; None if nothing, or of other content."""
    file = _part_file(out, chunk.index)
    if not file.exists():
        return None
    metadata = pq.read_schema(file).metadata or {}
    if metadata.get(_DIGEST) != chunk.digest.encode():
        return None
    return PartDone(chunk.index, int(metadata[_COUNT]), fresh=False, size=chunk.size)


def _left_out_of(metadata: dict[bytes, bytes]) -> LeftOut:
    told = json.loads(metadata[_LEFT_OUT])
    found = LeftOut()
    found.reasons.update(told["reasons"])
    found.examples = told["examples"]
    return found


def _emptied(out: Path) -> None:
    """Removes what an audit wrote, and only that."""
    if (out / PARTS).is_dir():
        for file in (out / PARTS).iterdir():
            file.unlink()
        (out / PARTS).rmdir()
    for name in (ASKED, POSITIONS, "summary.json", "report.html"):
        (out / name).unlink(missing_ok=True)
