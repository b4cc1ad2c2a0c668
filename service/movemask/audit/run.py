"""Runs an audit of files: chunk by chunk into parts, so that a stopped audit can be resumed; the parts into a summary.

How the work is spread, over processes in `local.py` or over a cluster in `cluster.py`, is the only thing that differs:
both are a `Spread`, and what they spread is the functions of this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from movemask.audit.files import Folder
from movemask.audit.parts import Finished, PartDone, join, part_file, write_part
from movemask.audit.rows import rows, schema
from movemask.audit.samples import Choice, Skipped, samples
from movemask.audit.sources import Chunk, Form, Sizes
from movemask.audit.summary import ModelSummary, summarised
from movemask.audit.tally import Tally, tally
from movemask.errors import AuditError
from movemask.network.model import Model

#: In the output folder while the audit runs: the folder of parts, the options that the parts belong to, and on a
#: cluster copies of the networks and which chunks have been begun.
PARTS, ASKED, NETWORKS, BEGUN = "parts", "asked.json", "networks", "begun"

#: The finished table: one file, or on a cluster a folder of them.
POSITIONS, PARTITIONS = "positions.parquet", "positions"

SUMMARY, REPORT = "summary.json", "report.html"

#: Parts that are tallied, searched and joined at once.
_GROUP = 64

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Job:
    """An audit: files, which positions of them and how, and the output folder.

    `form` is that of all files if given; `limit` the most games and lines in all; with `keep_going`, a file that cannot
    be read is left out from there on and counted.
    """

    files: Sequence[str]
    choice: Choice
    out: Folder
    form: Form | None = None
    limit: int | None = None
    keep_going: bool = False
    sizes: Sizes = field(default_factory=Sizes)

    @property
    def parts(self) -> Folder:
        return self.out / PARTS

    def asked(self, digests: dict[str, str]) -> dict[str, Any]:
        """What two runs must have in common for the parts of one to be used by the other."""
        choice, sizes = json.loads(json.dumps([asdict(self.choice), asdict(self.sizes)]))
        return {"version": 2, "models": digests, "choice": choice, "sizes": sizes}


class Spread(Protocol):
    """Where an audit's work is done."""

    def evaluate(self, job: Job, done: Callable[[PartDone], None]) -> Finished:
        """Makes the part of every chunk that has none yet; `done` is called for each chunk."""
        ...

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The function of each item, in any order. What it writes may be written again after a failure."""
        ...

    @property
    def partitioned(self) -> bool:
        """Whether the table is written as several files."""
        ...


def begin(job: Job, digests: dict[str, str], *, restart: bool) -> bool:
    """Prepares the output folder; True if it holds parts of an earlier run. Raises AuditError if it holds anything
    else."""
    out, asked = job.out, job.asked(digests)
    names = out.names()
    others = [name for name in names if _PARTIAL.sub("", name) not in _OURS]
    if others:
        raise AuditError(f"{out}: holds something else ({others[0]}); give --out another folder")
    if restart:
        for name in names:
            (out / name).remove()
    elif SUMMARY in names:
        raise AuditError(f"{out}: holds a finished audit; give --out another folder, or --restart to do it again")
    elif ASKED in names and _read_asked(out / ASKED) != asked:
        raise AuditError(
            f"{out}: was begun with other networks or options; give --out another folder, or --restart to begin anew"
        )
    job.parts.make()
    (out / ASKED).write_text(json.dumps(asked, indent=1))
    return bool(job.parts.names())


_OURS = (PARTS, ASKED, NETWORKS, BEGUN, POSITIONS, PARTITIONS, SUMMARY, REPORT)

_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")  # a file that a crash cut short


def _read_asked(file: Folder) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError:  # cut short by a crash
        return None


def make_part(parts: Folder, choice: Choice, chunk: Chunk, models: Sequence[Model]) -> PartDone:
    """Evaluates a chunk by each network, and writes its part."""
    skipped = Skipped()
    positions = list(samples(chunk, choice, skipped))
    table = pa.concat_tables([rows(model, positions, choice, skipped) for model in models])
    write_part(parts, chunk, table, len(positions), skipped)
    return PartDone(chunk.key, len(positions), fresh=True, size=chunk.size)


def leave_out(parts: Folder, choice: Choice, chunk: Chunk, reason: str) -> PartDone:
    """Writes an empty part for a chunk that cannot be evaluated; its games or lines are left out for this reason."""
    skipped = Skipped()
    last = chunk.first + len(chunk.items) - 1
    skipped.add(reason, f"{chunk.source}: {chunk.first} to {last}")
    skipped.reasons[reason] = len(chunk.items)
    write_part(parts, chunk, schema(choice.kinds).empty_table(), 0, skipped)
    return PartDone(chunk.key, 0, fresh=True, size=chunk.size)


def conclude(job: Job, finished: Finished, names: Sequence[str], spread: Spread) -> tuple[list[ModelSummary], Skipped]:
    """Summarises the parts by network, in the order of `names`, and joins them into the table. The parts stay, so that
    a crash in here loses nothing."""
    numbered = ((place, part_file(job.parts, key)) for place, key in enumerate(finished.keys()))
    groups = list(iter(lambda: list(islice(numbered, _GROUP)), []))
    total = Tally()
    for one in spread.each(tally, groups):
        total = Tally.merged([total, one])
    files = [[file for _, file in group] for group in groups]
    models = summarised(total, files, names, spread.each)
    if spread.partitioned:
        folder = job.out / PARTITIONS
        folder.remove()
        folder.make()
        joins = [(group, folder / f"{number:05}.parquet") for number, group in enumerate(files)]
    else:
        joins = [([file for group in files for file in group], job.out / POSITIONS)]
    for _ in spread.each(partial(_join, job.choice.kinds), joins):
        pass
    skipped = finished.skipped()
    skipped.merge(total.skipped)
    return models, skipped


def _join(kinds: Sequence[str], files_and_target: tuple[Sequence[Folder], Folder]) -> None:
    files, target = files_and_target
    join(files, target, kinds)


def end(job: Job) -> None:
    """Removes what only a run that goes on needs."""
    for name in (PARTS, NETWORKS, BEGUN, ASKED):
        (job.out / name).remove()


def table_of(job: Job, spread: Spread) -> Folder:
    """The finished table."""
    return job.out / (PARTITIONS if spread.partitioned else POSITIONS)
