"""Runs an audit of files: chunk by chunk into parts, then the parts into a table. A stopped audit can be resumed.

This process reads the files. Processes of this machine (`LocalBackend`) or of a Ray cluster (`ray.RayBackend`) evaluate
the chunks. Nothing else differs.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from movemask.audit.files import Folder
from movemask.audit.read import EXAMPLES, Choice, Chunk, ChunkKey, Form, Skipped, read, samples
from movemask.audit.rows import rows, schema
from movemask.errors import BulkError, SourceError
from movemask.network.model import Model
from movemask.network.registry import open_model
from movemask.parent import end_with_parent

#: In the output folder while the audit runs: the folder of parts, and the options that made them.
PARTS, OPTIONS = "parts", "asked.json"

#: The files of results.
POSITIONS, SUMMARY, REPORT = "positions.parquet", "summary.json", "report.html"

_OURS = (PARTS, OPTIONS, POSITIONS, SUMMARY, REPORT)

_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")  # ending of a file that a crash left behind

_LEFT_OUT, _DIGEST, _COUNT = b"left_out", b"chunk", b"positions"  # keys of a part's metadata

#: Parts per row group of the table.
_PARTS_PER_GROUP = 64

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Job:
    """An audit: its files, the choice of positions, and the output folder.

    form : the form of all files; None to look at each file
    limit : most games and lines, over all files
    keep_going : if a file cannot be read further, its rest is left out and counted; otherwise the audit stops
    """

    files: Sequence[str]
    choice: Choice
    out: Folder
    form: Form | None = None
    limit: int | None = None
    keep_going: bool = False

    @property
    def parts(self) -> Folder:
        return self.out / PARTS

    def options(self, digests: dict[str, str]) -> str:
        """Returns the options as JSON. A run can use an earlier run's parts only if both have the same options."""
        return json.dumps(
            {"version": 5, "models": digests, "choice": asdict(self.choice)}, indent=1
        )


@dataclass(frozen=True, slots=True)
class PartDone:
    """A finished chunk with its games or lines (`items`) and bytes (`size`). Not `fresh` if an earlier run made it."""

    key: ChunkKey
    items: int
    positions: int
    fresh: bool
    size: int
    skipped: Skipped


@dataclass(slots=True)
class Finished:
    """The results over all files so far: chunks, errors of files that could not be read to their end, skipped items.

    examples : pairs as in `Skipped`, each with its chunk
    """

    chunks: list[ChunkKey] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[ChunkKey, tuple[str, str]]] = field(default_factory=list)

    def add(self, part: PartDone) -> None:
        self.reasons.update(part.skipped.reasons)
        examples = self.examples + [(part.key, example) for example in part.skipped.examples]
        counts, self.examples = Counter[str](), []
        for key, (reason, example) in sorted(examples, key=lambda example: example[0]):
            counts[reason] += 1
            if counts[reason] <= EXAMPLES:
                self.examples.append((key, (reason, example)))

    @property
    def skipped(self) -> Skipped:
        """Everything skipped: files, then reasons in alphabetical order, with examples in the order of the files."""
        skipped = Skipped()
        for error in self.unreadable:
            skipped.add("file that cannot be read to its end", error)
        skipped.reasons.update(dict(sorted(self.reasons.items())))
        skipped.examples += [example for _, example in self.examples]
        return skipped


class Backend(Protocol):
    """Evaluates chunks, on this machine or elsewhere."""

    def parts(
        self, job: Job, chunks: Iterable[tuple[Chunk, bool]]
    ) -> Generator[PartDone, None, None]:
        """Returns the part of each chunk, in any order. The number of running chunks is bounded.

        A chunk's flag says that an earlier run may have made its part.
        """
        ...

    def run(self, function: Callable[..., R], *arguments: Any) -> R:
        """Returns the result of a function. After a failure the function may run, and write, again."""
        ...


def begin(job: Job, digests: dict[str, str], *, restart: bool) -> bool:
    """Prepares the output folder. True if it holds parts of an earlier run; BulkError if it holds anything else."""
    out, options = job.out, job.options(digests)
    names = out.names()
    others = [name for name in names if _PARTIAL.sub("", name) not in _OURS]
    if others:
        raise BulkError(f"{out}: contains something else ({others[0]}); give --out another folder")
    if restart:
        for name in names:
            (out / name).remove()
    elif SUMMARY in names:
        raise BulkError(
            f"{out}: contains a finished audit; give --out another folder, or --restart to repeat it"
        )
    elif OPTIONS in names and (out / OPTIONS).read_text() != options:
        raise BulkError(
            f"{out}: was started with other networks or options; give --out another folder, or --restart to start over"
        )
    job.parts.make()
    (out / OPTIONS).write_bytes(options.encode())
    return bool(job.parts.names())


def make_parts(job: Job, backend: Backend, done: Callable[[PartDone], None]) -> Finished:
    """Makes the missing parts and calls `done` for each chunk.

    Raises BulkError if a worker dies and cannot be replaced, SourceError for a file that cannot be read.
    """
    finished = Finished()
    earlier = set(job.parts.names())
    chunks = ((chunk, _part_name(chunk.key) in earlier) for chunk in _chunks(job, finished))
    with closing(backend.parts(job, chunks)) as parts:
        for part in parts:
            finished.add(part)
            done(part)
    return finished


def _chunks(job: Job, finished: Finished) -> Iterator[Chunk]:
    """Yields the chunks of all files, in order."""
    left = job.limit
    for index, name in enumerate(job.files):
        try:
            for chunk in read(index, name, job.form, limit=left):
                finished.chunks.append(chunk.key)
                left = None if left is None else left - chunk.count
                yield chunk
        except SourceError as error:
            if not job.keep_going:
                raise
            finished.unreadable.append(str(error))


class LocalBackend:
    """Evaluates chunks in processes of this machine."""

    def __init__(self, contracts: Sequence[Path], jobs: int) -> None:
        self._contracts, self._jobs = tuple(contracts), jobs

    def run(self, function: Callable[..., R], *arguments: Any) -> R:
        return function(*arguments)

    def parts(
        self, job: Job, chunks: Iterable[tuple[Chunk, bool]]
    ) -> Generator[PartDone, None, None]:
        with ProcessPoolExecutor(self._jobs, get_context("spawn"), _start) as pool:
            futures = (
                pool.submit(_part, self._contracts, job.parts, job.choice, chunk, earlier)
                for chunk, earlier in chunks
            )
            pending: set[Future[PartDone]] = set()
            try:
                while pending := pending.union(islice(futures, 2 * self._jobs - len(pending))):
                    ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in ready)
            except BrokenProcessPool:
                raise BulkError(
                    "a worker process died, perhaps because memory ran out: try fewer --jobs; "
                    "run the same command again to resume"
                ) from None
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _start() -> None:
    # The parent gets the signal too, and stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


@cache
def _open(contract: Path) -> Model:
    """Returns a network, opened once per worker. It uses one thread, because each core has a worker."""
    return open_model(contract, 1)


def _part(
    contracts: tuple[Path, ...], parts: Folder, choice: Choice, chunk: Chunk, earlier: bool
) -> PartDone:
    return make_part(
        parts, choice, chunk, [_open(contract) for contract in contracts], earlier=earlier
    )


def make_part(
    parts: Folder, choice: Choice, chunk: Chunk, models: Sequence[Model], *, earlier: bool
) -> PartDone:
    """Evaluates a chunk with each network and writes its part, unless an earlier run made it.

    The part stays a single file even if a worker that counted as dead writes it again.
    """
    if earlier and (part := _earlier_part(parts, chunk)) is not None:
        return part
    skipped = Skipped()
    positions = list(samples(chunk, choice, skipped))
    table = pa.concat_tables([rows(model, positions, choice, skipped) for model in models])
    return _write(parts, chunk, table, len(positions), skipped)


def leave_out(parts: Folder, choice: Choice, chunk: Chunk, reason: str) -> PartDone:
    """Writes an empty part for a chunk that cannot be evaluated. All its games or lines are skipped for `reason`."""
    skipped = Skipped()
    skipped.add(reason, f"{chunk.source}: {chunk.items[0][0]} to {chunk.items[-1][0]}")
    skipped.reasons[reason] = chunk.count
    return _write(parts, chunk, schema(choice.kinds).empty_table(), 0, skipped)


def _part_name(key: ChunkKey) -> str:
    return f"{key.file:06}-{key.number:07}.parquet"


def _write(
    parts: Folder, chunk: Chunk, table: pa.Table, positions: int, skipped: Skipped
) -> PartDone:
    left_out = json.dumps({"reasons": skipped.reasons, "examples": skipped.examples})
    metadata = {_DIGEST: chunk.digest, _LEFT_OUT: left_out, _COUNT: str(positions)}
    with (parts / _part_name(chunk.key)).written() as (system, path):
        pq.write_table(
            table.replace_schema_metadata(metadata), path, compression="zstd", filesystem=system
        )
    return PartDone(chunk.key, chunk.count, positions, fresh=True, size=chunk.size, skipped=skipped)


def _earlier_part(parts: Folder, chunk: Chunk) -> PartDone | None:
    """Returns the part that an earlier run made from the same content; None if there is none."""
    system, path = (parts / _part_name(chunk.key)).place
    metadata = pq.read_schema(path, filesystem=system).metadata or {}
    if metadata.get(_DIGEST) != chunk.digest.encode():
        return None
    left_out = json.loads(metadata[_LEFT_OUT])
    examples = [(reason, example) for reason, example in left_out["examples"]]
    skipped = Skipped(Counter(left_out["reasons"]), examples)
    return PartDone(
        chunk.key, chunk.count, int(metadata[_COUNT]), fresh=False, size=chunk.size, skipped=skipped
    )


def join(job: Job, finished: Finished, backend: Backend) -> Folder:
    """Joins the parts into the table. The parts stay, so that a crash before the summary loses nothing."""
    parts, table = job.parts.absolute(), job.out / POSITIONS
    files = [parts / _part_name(key) for key in finished.chunks]
    backend.run(_join, files, table.absolute(), schema(job.choice.kinds))
    return table


def _join(parts: Sequence[Folder], target: Folder, table_schema: pa.Schema) -> None:
    """Joins parts into one Parquet file. One row group is in memory at a time."""
    with (
        target.written() as (system, path),
        pq.ParquetWriter(path, table_schema, compression="zstd", filesystem=system) as writer,
    ):
        for first in range(0, len(parts), _PARTS_PER_GROUP):
            files = [part.place[1] for part in parts[first : first + _PARTS_PER_GROUP]]
            writer.write_table(pq.read_table(files, schema=table_schema, filesystem=system))


def end(job: Job) -> None:
    """Removes the parts and options, which only resuming needs."""
    for name in (PARTS, OPTIONS):
        (job.out / name).remove()
