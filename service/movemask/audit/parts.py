"""Parts: the rows of a chunk as a Parquet file, which a resumed audit need not make again, and their joining."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from movemask.audit.files import Folder
from movemask.audit.rows import schema
from movemask.audit.samples import Skipped
from movemask.audit.sources import Chunk, Key

_SKIPPED, _DIGEST, _COUNT = b"left_out", b"chunk", b"positions"


@dataclass(frozen=True, slots=True)
class PartDone:
    """A finished chunk; `fresh` unless an earlier run finished it, `size` as of the chunk."""

    key: Key
    positions: int
    fresh: bool
    size: int


@dataclass(slots=True)
class Finished:
    """What has been read of all files: the number of chunks of each split by file and split, and why a file could not
    be read to its end."""

    chunks: dict[tuple[int, int], int] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)

    def keys(self) -> Iterator[Key]:
        """The keys of all chunks, in order."""
        for (file, split), count in sorted(self.chunks.items()):
            yield from (Key(file, split, number) for number in range(count))

    def skipped(self) -> Skipped:
        """The files that could not be read to their end, as what was left out."""
        found = Skipped()
        for file in sorted(self.unreadable):
            found.add("file that cannot be read to its end", self.unreadable[file])
        return found


def part_file(parts: Folder, key: Key) -> Folder:
    return parts / f"{key.file:06}-{key.split:05}-{key.number:06}.parquet"


def write_part(parts: Folder, chunk: Chunk, table: pa.Table, positions: int, skipped: Skipped) -> None:
    """Writes the part of a chunk. Written twice, by a worker that was thought dead, it is still one part."""
    entry = json.dumps({"reasons": skipped.reasons, "examples": skipped.examples})
    metadata = {_DIGEST: chunk.digest, _SKIPPED: entry, _COUNT: str(positions)}
    with part_file(parts, chunk.key).written() as (system, path):
        pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd", filesystem=system)


def part_of(parts: Folder, chunk: Chunk) -> PartDone | None:
    """The part of an earlier run with the same content; None if there is none."""
    file = part_file(parts, chunk.key)
    if not file.exists():
        return None
    metadata = _metadata(file)
    if metadata.get(_DIGEST) != chunk.digest.encode():
        return None
    return PartDone(chunk.key, int(metadata[_COUNT]), fresh=False, size=chunk.size)


def skipped_in(file: Folder) -> Skipped:
    """What was left out of a part's chunk."""
    entry = json.loads(_metadata(file)[_SKIPPED])
    return Skipped(Counter(entry["reasons"]), entry["examples"])


def read_table(file: Folder, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part or a table; of these columns, as far as it has them."""
    system, path = file.place
    with pq.ParquetFile(path, filesystem=system) as part:
        names = part.schema_arrow.names
        return part.read(None if columns is None else [name for name in columns if name in names])


def join(files: Iterable[Folder], to: Folder, kinds: Sequence[str]) -> None:
    """Joins parts into one Parquet file, one part at a time."""
    wanted = schema(kinds)
    with (
        to.written() as (system, path),
        pq.ParquetWriter(path, wanted, compression="zstd", filesystem=system) as writer,
    ):
        for file in files:
            table = read_table(file).cast(wanted)
            if table.num_rows:
                writer.write_table(table)


def _metadata(file: Folder) -> Mapping[bytes, bytes]:
    system, path = file.place
    return pq.read_schema(path, filesystem=system).metadata or {}
