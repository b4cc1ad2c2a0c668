"""Spreads an audit over processes of this machine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from movemask.audit.files import Folder
from movemask.audit.parts import Finished, PartDone, part_of
from movemask.audit.run import Job, make_part
from movemask.audit.samples import Choice
from movemask.audit.sources import Chunk, read
from movemask.errors import AuditError, SourceError
from movemask.network.model import Model
from movemask.network.registry import open_model
from movemask.processes import end_with_parent

T = TypeVar("T")
R = TypeVar("R")


class LocalSpread:
    """Worker processes evaluate; this one reads the files and summarises."""

    partitioned = False

    def __init__(self, contracts: Sequence[Path], jobs: int) -> None:
        self._contracts, self._jobs = tuple(contracts), jobs

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return map(function, items)

    def evaluate(self, job: Job, done: Callable[[PartDone], None]) -> Finished:
        """With a bounded number of chunks in flight. Raises AuditError if a worker dies, and whatever it raises."""
        finished = Finished()
        with ProcessPoolExecutor(self._jobs, get_context("spawn"), _start) as pool:
            pending: set[Future[PartDone]] = set()
            try:
                for chunk in _chunks(job, finished):
                    file, split, number = chunk.key
                    finished.chunks[file, split] = number + 1
                    earlier = part_of(job.parts, chunk)
                    if earlier is not None:
                        done(earlier)
                        continue
                    pending.add(pool.submit(_work, self._contracts, job.parts, job.choice, chunk))
                    while len(pending) >= 2 * self._jobs:
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
        return finished


def _chunks(job: Job, finished: Finished) -> Iterator[Chunk]:
    """The chunks of all files, in order."""
    left = job.limit
    for index, name in enumerate(job.files):
        try:
            for chunk in read(index, name, job.form, job.sizes, left):
                yield chunk
                left = None if left is None else left - len(chunk.items)
        except SourceError as error:
            if not job.keep_going:
                raise
            finished.unreadable[index] = str(error)


def _collected(pending: set[Future[PartDone]], done: Callable[[PartDone], None]) -> set[Future[PartDone]]:
    """Waits for at least one; returns those still running."""
    finished, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in finished:
        done(future.result())
    return rest


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and stops the workers
    end_with_parent()


@cache
def _opened(contract: Path) -> Model:
    """A network, opened once per worker, with one thread: there is a worker per core."""
    return open_model(contract, 1)


def _work(contracts: tuple[Path, ...], parts: Folder, choice: Choice, chunk: Chunk) -> PartDone:
    return make_part(parts, choice, chunk, [_opened(contract) for contract in contracts])
