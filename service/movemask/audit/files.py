"""Files by path or by URI: local ones, and object storage (`s3://`, `gs://`, `abfs://`, what fsspec knows)."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from movemask.errors import SourceError
from movemask.extras import require

_REMOTE_BUFFER = 8 << 20  # bytes fetched at once from object storage


def is_uri(name: str) -> bool:
    """Whether a name is a URI, not a local path."""
    return "://" in name


def open_binary(name: str) -> Any:
    """A file opened for reading, unbuffered if it is local. Raises OSError, and SourceError for an unknown URI."""
    if not is_uri(name):
        return Path(name).open("rb", buffering=0)
    system, path = located(name)
    return io.BufferedReader(system.open_input_file(path), _REMOTE_BUFFER)


def size_of(name: str) -> int | None:
    """Bytes of a file; None for what is no plain file, such as a pipe. Raises OSError if it does not exist."""
    if not is_uri(name):
        return Path(name).stat().st_size if Path(name).is_file() else None
    system, path = located(name)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(2, "No such file", name)
    return int(info.size)


@cache
def _system_of(origin: str, example: str) -> Any:
    """The file system of the URIs that begin with `origin`."""
    from pyarrow import fs

    try:
        return fs.FileSystem.from_uri(_in_one_request(example))[0]
    except (ValueError, NotImplementedError, ImportError):
        pass  # pyarrow does not know it; fsspec may
    try:
        require("ray", example)
        import fsspec

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.url_to_fs(example)[0]))
    except (ValueError, ImportError) as error:
        raise SourceError(f"{example}: {error}") from None


def _in_one_request(uri: str) -> str:
    """Of S3, a small file is written by one request instead of three, which a killed worker would leave unfinished."""
    if not uri.startswith("s3://") or "allow_delayed_open=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true"


def located(name: str) -> tuple[Any, str]:
    """The pyarrow file system of a path or URI, and the path in it. Options of pyarrow stand in the URI's query, such
    as `s3://bucket/key?region=eu-west-1`."""
    from pyarrow import fs

    if not is_uri(name):
        return fs.LocalFileSystem(), os.path.abspath(name)
    scheme, _, rest = name.partition("://")
    place, mark, query = rest.partition("?")
    root = place.partition("/")[0]
    system = _system_of(f"{scheme}://{root}{mark}{query}", name)
    if isinstance(system, fs.LocalFileSystem):
        return system, "/" + place.lstrip("/")
    if isinstance(system, fs.PyFileSystem):
        return system, str(system.handler.fs._strip_protocol(f"{scheme}://{place}"))
    return system, str(fs.FileSystem.from_uri(name)[1])


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder for results, by path or URI. Files appear whole or not at all, whoever else writes them."""

    name: str

    def __truediv__(self, name: str) -> Folder:
        head, mark, query = self.name.partition("?")
        return Folder(f"{head.rstrip('/')}/{name}{mark}{query}")

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> tuple[Any, str]:
        return located(self.name)

    def make(self) -> None:
        if not is_uri(self.name):
            Path(self.name).mkdir(parents=True, exist_ok=True)  # its errors name the cause
        else:
            system, path = self.place
            system.create_dir(path, recursive=True)

    def names(self) -> list[str]:
        """The names in the folder, sorted; none if there is no such folder. Raises OSError if it is a file."""
        from pyarrow import fs

        if not is_uri(self.name):
            return sorted(os.listdir(self.name)) if Path(self.name).exists() else []
        system, path = self.place
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def infos(self) -> list[Any]:
        """The pyarrow FileInfo of each file in the folder."""
        from pyarrow import fs

        system, path = self.place
        return [info for info in system.get_file_info(fs.FileSelector(path)) if info.is_file]

    def exists(self) -> bool:
        from pyarrow import fs

        system, path = self.place
        return bool(system.get_file_info(path).type != fs.FileType.NotFound)

    def read_bytes(self) -> bytes:
        system, path = self.place
        with system.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    @contextmanager
    def written(self) -> Iterator[tuple[Any, str]]:
        """The file system and path to write to; afterwards the file stands in its place, replacing another."""
        from pyarrow import fs

        system, path = self.place
        if isinstance(system, fs.S3FileSystem | fs.GcsFileSystem):  # a file appears when it is closed
            yield system, path
            return
        partial = f"{path}.{uuid.uuid4().hex}.partial"  # unique: a worker that was given up may still write
        yield system, partial
        if isinstance(system, fs.LocalFileSystem):
            os.replace(partial, path)
        else:
            system.move(partial, path)

    def write_bytes(self, data: bytes) -> None:
        with self.written() as (system, path), system.open_output_stream(path, compression=None) as stream:
            stream.write(data)

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode())

    def remove(self) -> None:
        """Removes the file, or the folder with all in it; nothing if there is none."""
        from pyarrow import fs

        system, path = self.place
        kind = system.get_file_info(path).type
        if kind == fs.FileType.Directory:
            system.delete_dir(path)
        elif kind != fs.FileType.NotFound:
            system.delete_file(path)
