"""Spreads an audit over a Ray cluster. The only module of the audit that imports Ray.

Readers take a split each and hand its chunks to a pool of actors that hold the networks, which write the parts. Ray
Data runs both, does again what was lost with a process or a node, and stops readers that are ahead of the actors. A
part that is written twice is one part, and the figures are taken from the parts, so nothing is counted twice.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from movemask.audit.files import Folder
from movemask.audit.parts import Finished, PartDone
from movemask.audit.run import BEGUN, NETWORKS, Job
from movemask.audit.sources import Entry, Passage, Source, entries
from movemask.audit.workers import (
    Auditor,
    SplitRead,
    Work,
    enter,
    passage_of,
    read_splits,
    readable_items,
    survey_files,
    write_networks,
)
from movemask.errors import AuditError, SourceError

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import: Ray reports its use otherwise
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # stderr is for progress; Ray has logs of its own

import ray
import ray.data
import ray.util.client

#: Logical CPUs of an actor and of a reader: with as many of both as cores, they fill a node.
_ACTOR_CPUS, _READER_CPUS = 0.9, 0.1

#: Bytes of chunks handed to an actor at once: one chunk of games, or a few of short ones.
_BLOCK = 64 << 10

#: Most tasks that the splits to read are divided into.
_READS = 1024

#: Files surveyed by a task.
_SURVEYED = 64

#: Times that Ray runs a task of the summary anew after its process or node died, before the audit stops.
_RETRIES = 20

_REACH_SECONDS = 10

#: Where `ray start --head` listens for Ray Client.
_CLIENT_PORT = 10001

#: Bytes of shared memory that a cluster started here gets, which suffice: only chunks under way are in it.
_OBJECT_STORE = 200 << 20

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def connected(
    address: str, contracts: Sequence[Path], jobs: int | None, cores: int, gpus: float = 0
) -> Iterator[RaySpread]:
    """A cluster, until the context ends: `local` starts one here, anything else is the address of one that runs.

    Raises AuditError if there is none, or none with as many GPUs as one actor needs.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        if address == "local":
            ray.init(
                address="local",
                num_cpus=jobs or cores,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE,
                **quiet,
            )
        else:
            ray.init(address=_reached(address), **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise AuditError(f"--ray {address}: {str(error).strip().splitlines()[0]}") from None
    try:
        found = ray.cluster_resources().get("GPU", 0)
        if gpus > found:
            raise AuditError(f"--gpus {gpus:g}: the cluster has {found:g}")
        yield RaySpread(contracts, jobs or (cores if address == "local" else None), gpus)
    except ray.exceptions.RayError as error:
        raise AuditError(f"ray: {_first_line(error)}; the same command goes on from here") from None
    finally:
        ray.shutdown()


def _reached(address: str) -> str:
    """The address, with the port of Ray Client if it names none. Raises OSError if nothing listens there: Ray itself
    would try for minutes."""
    if address.startswith("ray://") and ":" not in address.removeprefix("ray://").rpartition("]")[2]:
        address = f"{address}:{_CLIENT_PORT}"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    return address


class RaySpread:
    """A connected cluster. `actors` is the most at a time; as many as the cluster has room for if None.

    `auditor` is the class of the actors, and `least` the number that there are at any time; the benchmark has others.
    """

    partitioned = True
    least = 1
    auditor: type[Auditor] = Auditor

    def __init__(self, contracts: Sequence[Path], actors: int | None, gpus: float) -> None:
        self._contracts = tuple(contracts)
        self._actors, self._gpus = actors, gpus

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """With at most two tasks a CPU under way."""
        task = ray.remote(_apply).options(num_cpus=1, max_retries=_RETRIES)
        shared = ray.put(function)
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        remaining = iter(items)
        here = os.getcwd()
        pending = [task.remote(here, shared, item) for item in islice(remaining, most)]
        while pending:
            (ready,), pending = ray.wait(pending)
            yield ray.get(ready)
            pending += [task.remote(here, shared, item) for item in islice(remaining, 1)]

    def evaluate(self, job: Job, done: Callable[[PartDone], None]) -> Finished:
        finished = Finished()
        work = list(self._planned(job, finished))
        if not work:
            return finished
        seen: dict[tuple[int, int], int] = {}  # by split, a bit for each chunk
        for one in self._results(job, work):
            if isinstance(one, PartDone):
                place, bit = (one.key.file, one.key.split), 1 << one.key.number
                if not seen.get(place, 0) & bit:
                    seen[place] = seen.get(place, 0) | bit
                    done(one)
            else:
                if one.chunks:
                    finished.chunks[one.file, one.split] = one.chunks
                if one.error:
                    _unreadable(job, finished, one.file, one.error)
        for place, count in finished.chunks.items():
            if seen.get(place) != (1 << count) - 1:
                raise AuditError(f"{job.files[place[0]]}: parts were lost; the same command goes on from here")
        return finished

    def _planned(self, job: Job, finished: Finished) -> Iterator[Work]:
        """The splits of all files. Only splits after the first need to know how many items came before, and only a
        limit needs that of every file."""
        left = job.limit
        for source in self._surveyed(job, finished):
            if left == 0:
                return
            if left is None and len(source.starts) == 1:
                yield Work(source, Entry())
                continue
            passages: list[Passage | None] = [None] * len(source.starts)
            for split, found in self.each(partial(passage_of, source), range(len(source.starts))):
                passages[split] = found
            for entry, count in entries(source, (one for one in passages if one is not None)):
                yield Work(source, entry, left)
                if left is not None:
                    if count is None:
                        (count,) = self.each(partial(readable_items, job.sizes), [(source, entry)])
                    left = max(0, left - count)
                if left == 0:
                    break

    def _surveyed(self, job: Job, finished: Finished) -> Iterator[Source]:
        """The files that can be read, in order."""
        names = iter(enumerate(job.files))
        groups = list(iter(lambda: list(islice(names, _SURVEYED)), []))
        # With a limit the first files may do.
        at_once = 1 if job.limit is not None else len(groups)
        for first in range(0, len(groups), at_once):
            surveyed = self.each(partial(survey_files, job.form, job.sizes), groups[first : first + at_once])
            found = sorted((one for group in surveyed for one in group), key=lambda one: one[0])
            for index, source in found:
                if isinstance(source, Source):
                    yield source
                else:
                    _unreadable(job, finished, index, source)

    def _results(self, job: Job, work: Sequence[Work]) -> Iterator[PartDone | SplitRead]:
        """Of every chunk that it is done, of every split that it was read; in any order."""
        networks = write_networks(job.out / NETWORKS, self._contracts)
        begun = job.out / BEGUN
        begun.remove()
        begun.make()
        flow = _Flow(os.getcwd(), job, networks, work, self.auditor, self.least, self._actors, self._gpus)
        if not ray.util.client.ray.is_connected():
            yield from flow.results()
            return
        runner = ray.remote(_Runner).options(num_cpus=0).remote(flow)
        while (one := ray.get(runner.next.remote())) is not None:
            yield one


@dataclass(frozen=True)
class _Flow:
    """The reading and evaluating of splits by Ray Data. `here` is the driver's folder, `most` as `RaySpread.actors`."""

    here: str
    job: Job
    networks: Sequence[Folder]
    work: Sequence[Work]
    auditor: type[Auditor]
    least: int
    most: int | None
    gpus: float

    def results(self) -> Iterator[PartDone | SplitRead]:
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # it logs to stderr as well
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.raise_original_map_exception = True
        context.target_max_block_size = context.target_min_block_size = _BLOCK
        rows = [{"item": pickle.dumps(one)} for one in self.work]
        job = self.job
        read = ray.data.from_items(rows, override_num_blocks=min(len(rows), _READS)).map_batches(
            read_splits,
            fn_kwargs={"folder": self.here, "parts": job.parts, "sizes": job.sizes},
            batch_size=1,
            batch_format="numpy",
            num_cpus=_READER_CPUS,
        )
        results = read.map_batches(
            self.auditor,
            fn_constructor_args=(self.here, self.networks, job.parts, job.out / BEGUN, job.choice, self.gpus > 0),
            compute=ray.data.ActorPoolStrategy(min_size=self.least, max_size=self.most),
            batch_size=None,
            batch_format="numpy",
            num_cpus=_ACTOR_CPUS,
            num_gpus=self.gpus,
        )
        for batch in results.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=1):
            for item in batch["item"]:
                yield pickle.loads(item)


class _Runner:
    """An actor that runs a flow on the cluster for a driver that is connected by Ray Client, where Ray Data cannot."""

    def __init__(self, flow: _Flow) -> None:
        enter(flow.here)
        self._results = flow.results()

    def next(self) -> PartDone | SplitRead | None:
        """The next result; None after the last."""
        return next(self._results, None)


def _apply(folder: str, function: Callable[[T], R], item: T) -> R:
    enter(folder)
    return function(item)


def _unreadable(job: Job, finished: Finished, file: int, error: str) -> None:
    if not job.keep_going:
        raise SourceError(error)
    finished.unreadable.setdefault(file, error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
