"""What the processes of a cluster do for an audit: read splits, and evaluate chunks. It knows nothing of Ray."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from movemask.audit.files import Folder
from movemask.audit.parts import PartDone, part_of
from movemask.audit.run import leave_out, make_part
from movemask.audit.samples import Choice
from movemask.audit.sources import Chunk, Entry, Form, Passage, Sizes, Source, chunks, passage, survey
from movemask.errors import SourceError
from movemask.network.contract import read_contract
from movemask.network.onnx import Provider, provider_named
from movemask.network.registry import network_file, open_model

#: Times that a chunk is begun before it is left out; a process may also die of something else.
TRIES = 5


@dataclass(frozen=True, slots=True)
class Work:
    """A split to read: where it is entered, and the most items to take of it."""

    source: Source
    entry: Entry
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SplitRead:
    """A split that has been read: the number of its chunks, and why it could not be read to its end."""

    file: int
    split: int
    chunks: int
    error: str = ""


class Auditor:
    """An actor: holds the networks and makes the parts of the chunks that it gets."""

    def __init__(
        self, here: str, networks: Sequence[Folder], parts: Folder, begun: Folder, choice: Choice, gpu: bool
    ) -> None:
        enter(here)
        self._parts, self._begun, self._choice = parts, begun, choice
        self._folder = tempfile.TemporaryDirectory(prefix="movemask-")
        provider = provider_named("cuda") if gpu else Provider.CPU
        self._models = []
        for number, network in enumerate(networks):
            folder = Path(self._folder.name, str(number))
            folder.mkdir()
            for name in network.names():
                (folder / name).write_bytes((network / name).read_bytes())
            (contract,) = folder.glob("*.toml")
            self._models.append(open_model(contract, 1, provider))

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """One result for each item; those that are no chunks are passed on."""
        for data in batch["item"]:
            one = pickle.loads(data)
            if isinstance(one, Chunk):
                # Another actor may have made it and died before it could say so.
                one = part_of(self._parts, one) or self._made(one)
            yield {"item": [pickle.dumps(one)]}

    def _made(self, chunk: Chunk) -> PartDone:
        """The part of a chunk; an empty one if its processes died again and again, as Ray would begin it for ever."""
        name = "-".join(map(str, chunk.key))
        begun = self._begun / name
        times = len(begun.read_bytes()) if begun.exists() else 0
        if times == TRIES:
            return leave_out(self._parts, self._choice, chunk, "game or line in a chunk that ended its process")
        begun.write_bytes(b"." * (times + 1))
        part = make_part(self._parts, self._choice, chunk, self._models)
        begun.remove()
        return part


def read_splits(batch: dict[str, Any], folder: str, parts: Folder, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """The chunks of splits that have no part yet, of the others that they are done, and that the split was read."""
    enter(folder)
    for data in batch["item"]:
        work: Work = pickle.loads(data)
        count, error = 0, ""
        try:
            for chunk in chunks(work.source, sizes, work.entry, limit=work.limit):
                count += 1
                yield {"item": [pickle.dumps(part_of(parts, chunk) or chunk)]}
        except SourceError as damage:
            error = str(damage)
        yield {"item": [pickle.dumps(SplitRead(work.source.index, work.entry.split, count, error))]}


def survey_files(form: Form | None, sizes: Sizes, names: Sequence[tuple[int, str]]) -> list[tuple[int, Source | str]]:
    """Each file, or why it cannot be read."""
    found: list[tuple[int, Source | str]] = []
    for index, name in names:
        try:
            found.append((index, survey(index, name, form, sizes)))
        except SourceError as error:
            found.append((index, str(error)))
    return found


def passage_of(source: Source, split: int) -> tuple[int, Passage]:
    return split, passage(source, split)


def readable_items(sizes: Sizes, source_and_entry: tuple[Source, Entry]) -> int:
    """The items of a split that come before its damage."""
    source, entry = source_and_entry
    count = 0
    try:
        for chunk in chunks(source, sizes, entry):
            count += len(chunk.items)
    except SourceError:
        pass
    return count


def enter(folder: str) -> None:
    """Makes relative paths mean here what they mean to the driver; its workers run nothing else. A node without that
    folder names the file that it cannot find."""
    with suppress(OSError):
        os.chdir(folder)


def write_networks(to: Folder, contracts: Sequence[Path]) -> list[Folder]:
    """Copies of the networks in the output folder, which every node can see, also one that replaces another."""
    folders = []
    for number, contract in enumerate(contracts):
        network = network_file(contract, read_contract(contract))
        folder = to / str(number)
        folder.make()
        for file in (contract, *([network] if network is not None else [])):
            (folder / file.name).write_bytes(file.read_bytes())
        folders.append(folder)
    return folders
