"""Text of files of games and positions: opened, decompressed and decoded while it is read."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from movemask.errors import MovemaskError, SourceError, require
from movemask.signatures import START, described

#: The name of standard input.
STDIN = "-"

_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
# a frame, or a skippable frame, as pzstd begins with
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")

#: Bytes that stand in no text. A zero may stand in one, and after its end.
_BINARY = re.compile(rb"\A\0|[\x01-\x06]")

#: Most characters of a line; no real game reaches it.
_LONGEST = 1 << 24

#: Most characters of blank lines that follow one another.
_MOST_BLANK = 1 << 20

#: Windows-1252, for the bytes that differ from Latin-1. Its five undefined bytes stay control characters, as in
#: browsers, so that no byte is lost.
_WINDOWS = str.maketrans(
    {
        chr(byte): bytes([byte]).decode("cp1252")
        for byte in {*range(0x80, 0xA0)} - {0x81, 0x8D, 0x8F, 0x90, 0x9D}
    }
)


class TextSource:
    """The lines of a file or of standard input. They end in LF, whatever system wrote them; `newline` has how.

    gzip and zstandard are recognised by their first bytes. Each line is decoded as UTF-8 if the whole line is valid
    UTF-8, otherwise as Windows-1252. So nothing is read twice, a file joined from both keeps both, and no byte is
    replaced.

    Raises SourceError if a file cannot be opened or read, or is not text.
    """

    def __init__(self, name: str, file: Any = None) -> None:
        """Opens the file `name`; or reads `file`, which needs `peek`, and uses `name` in errors only."""
        self.name = name
        self._blank = 0  # characters of blank lines since the last other line
        try:
            self._file = _opened(name) if file is None else file
        except OSError as error:
            raise SourceError(f"{name}: {_why(error)}") from None
        try:
            self._lines = self._text()
        except (OSError, EOFError, zlib.error) as error:
            self._file.close()
            raise self._cut_short(error) from None
        except MovemaskError:
            self._file.close()
            raise

    def _text(self) -> io.TextIOWrapper:
        start = self._file.peek(4)[:4]
        data: Any = self._file
        if start[:2] == _GZIP:
            data = gzip.GzipFile(fileobj=self._file)
        elif _ZSTD.match(start):
            require("audit", self.name)
            import pyarrow as pa

            data = io.BufferedReader(
                pa.CompressedInputStream(pa.PythonFile(self._file, "r"), "zstd")
            )
        head = data.peek(START)[:START]
        if known := described(head):
            packed = " (gzip and zstandard are read as they are)" if "unpack" in known else ""
            raise SourceError(f"{self.name}: {known}{packed}")
        if _BINARY.search(head):
            raise SourceError(f"{self.name}: binary data, neither a PGN nor a list of FENs")
        if head.startswith(_BOM):
            data.read(len(_BOM))
        return io.TextIOWrapper(data, "latin-1")

    def __enter__(self) -> TextSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    @property
    def position(self) -> int:
        """Bytes taken from the file; 0 for a pipe, which does not tell. The decompressor may be a little ahead."""
        return int(self._file.tell()) if self._file.seekable() else 0

    @property
    def newline(self) -> str:
        """The end of the lines that were read so far; LF if they differ."""
        return "\r\n" if self._lines.newlines == "\r\n" else "\n"

    def readline(self) -> str:
        """Returns the next line; empty after the last."""
        try:
            line = self._lines.readline(_LONGEST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise self._cut_short(error) from None
        if len(line) > _LONGEST:
            raise SourceError(
                f"{self.name}: a line of more than {_LONGEST >> 20} MiB is neither a game nor a FEN"
            )
        self._blank = self._blank + len(line) if line.isspace() else 0
        if self._blank > _MOST_BLANK:
            raise SourceError(
                f"{self.name}: more than {_MOST_BLANK >> 20} MiB of blank lines in a row"
            )
        return _decoded(line)

    def _cut_short(self, error: Exception) -> SourceError:
        return SourceError(f"{self.name}: cannot be read to its end: {_why(error)}")


def _decoded(line: str) -> str:
    """Returns a line that was read as Latin-1, decoded from its bytes."""
    try:
        return line if line.isascii() else line.encode("latin-1").decode()
    except UnicodeDecodeError:
        return line.translate(_WINDOWS)


def _opened(name: str) -> Any:
    """Returns a file's bytes, buffered."""
    if name == STDIN:
        return io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))
    return Path(name).open("rb")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
