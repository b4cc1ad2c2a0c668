"""Files by path or URI, through pyarrow: local files, and object storage (`s3://`, `gs://`, `abfs://`, `fsspec+…://`).

pyarrow is imported in functions: it comes with the extra `audit`, and local text files do not need it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from movemask.errors import SourceError


def is_uri(name: str) -> bool:
    """Returns whether a name is a URI, not a local path."""
    return "://" in name


@lru_cache(256)  # a file system of object storage keeps its connections
def locate(name: str) -> tuple[Any, str]:
    """Returns the pyarrow file system of a path or URI, and the path in it. Raises SourceError.

    The URI's query may hold options of pyarrow, such as `s3://bucket/key?region=eu-west-1`.
    """
    from pyarrow import fs

    if not is_uri(name):
        return fs.LocalFileSystem(), os.path.abspath(name)
    uri = name
    if name.startswith("s3://") and "allow_delayed_open=" not in name:
        # A small file is then one request instead of three, which a killed worker would leave unfinished.
        uri += f"{'&' if '?' in name else '?'}allow_delayed_open=true"
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError, ImportError) as error:
        raise SourceError(f"{name}: {error}") from None
    return system, path


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder or file for results, by path or URI. A file appears whole or not at all, even with several writers."""

    name: str

    def __truediv__(self, name: str) -> Folder:
        head, mark, query = self.name.partition("?")
        return Folder(f"{head.rstrip('/')}/{name}{mark}{query}")

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> tuple[Any, str]:
        return locate(self.name)

    def absolute(self) -> Folder:
        """Returns the same folder, for a process with another working folder."""
        return self if is_uri(self.name) else Folder(os.path.abspath(self.name))

    def make(self) -> None:
        system, path = self.place
        system.create_dir(path, recursive=True)

    def names(self) -> list[str]:
        """Returns the names in the folder, sorted; empty if it does not exist. Raises OSError if it is a file."""
        from pyarrow import fs

        system, path = self.place
        return sorted(
            info.base_name
            for info in system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        )

    def read_text(self) -> str:
        system, path = self.place
        with system.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read()).decode()

    @contextmanager
    def written(self) -> Iterator[tuple[Any, str]]:
        """Yields the file system and path to write to.

        On leaving, the new file replaces the old one.
        """
        from pyarrow import fs

        system, path = self.place
        # There, a file appears only when it is closed.
        if isinstance(system, fs.S3FileSystem | fs.GcsFileSystem):
            yield system, path
            return
        partial = f"{path}.{uuid.uuid4().hex}.partial"  # unique, because a worker that counts as dead may still write
        yield system, partial
        system.move(partial, path)

    def write_bytes(self, data: bytes) -> None:
        with (
            self.written() as (system, path),
            system.open_output_stream(path, compression=None) as stream,
        ):
            stream.write(data)

    def remove(self) -> None:
        """Removes the file, or the folder with its content, if it exists."""
        from pyarrow import fs

        system, path = self.place
        file_type = system.get_file_info(path).type
        if file_type == fs.FileType.Directory:
            system.delete_dir(path)
        elif file_type != fs.FileType.NotFound:
            system.delete_file(path)
