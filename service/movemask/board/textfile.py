"""Text of files of games and positions: opened, decompressed and decoded while it is read."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from movemask.errors import MovemaskError, SourceError, require

#: The name of standard input.
STDIN = "-"

_GZIP = b"\x1f\x8b"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a frame, or a skippable frame, as pzstd begins with

#: First bytes of other formats, and advice for the user.
_FORMATS = (
    (rb"PK(\x03\x04|\x05\x06)", "a zip archive: unpack it first"),
    (rb"BZh[1-9]1AY&SY", "compressed by bzip2: unpack it first"),
    (rb"\xfd7zXZ\0", "compressed by xz: unpack it first"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (rb"Rar!\x1a\x07", "a rar archive: unpack it first"),
    (rb".{257}ustar", "a tar archive: unpack it first"),
    (rb"(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml|head)", "a web page: download the file that it links to"),
    (rb"version https://git-lfs", "a Git LFS pointer in place of the file: run `git lfs pull`"),
    (rb"%PDF-", "a PDF: export the games as PGN"),
    (rb"\{\\rtf", "an RTF document: save it as plain text"),
    (rb"Scid\.s[ig]\0", "a Scid database: export its games as PGN"),
    (rb"\x0d\xc0\x01\0\0", "lc0's weights, not games: `movemask models import` reads them"),
    (rb"\x08[\x01-\x1f][\x12\x1a\x22\x32\x3a\x42]", "an ONNX network, not games: `movemask models add` reads it"),
)
_OTHER = [(re.compile(pattern, re.IGNORECASE | re.DOTALL), advice) for pattern, advice in _FORMATS]

#: Bytes of text taken from a decompressor at once. At most this much text before a damaged place is lost.
_BLOCK = 1 << 14

#: Most characters of a line; no real game reaches it.
_LONGEST = 1 << 24

#: Limits of a decompression bomb: the text may be 500 times as long as the compressed bytes, checked after its first
#: 4 MiB. Collections of games are five to twenty times as long. A pipe's length is unknown. zstandard itself refuses
#: windows of more than 128 MiB.
_RATIO, _UNMEASURED = 500, 1 << 22

_TEXT = bytes([*range(0x07, 0x0E), 0x1A, 0x1B, *range(0x20, 0x100)])
_PADDING = b"\0\x1a"  # after a text: the rest of a block, and DOS's end of file

#: Windows-1252, for the bytes that differ from Latin-1. Its five undefined bytes stay control characters, as in
#: browsers, so that no byte is lost.
_WINDOWS = str.maketrans(
    {
        chr(byte): bytes([byte]).decode("cp1252")
        for byte in range(0x80, 0xA0)
        if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
    }
)


class TextSource:
    """The lines of a file or of standard input. They end in LF, whatever system wrote them.

    gzip, zstandard and UTF-16 are recognised by their first bytes. Other text is decoded line by line: as UTF-8 if the
    whole line is valid UTF-8, otherwise as Windows-1252. So nothing is read twice, a file joined from both encodings
    keeps both, and no byte is replaced. It goes wrong if a line's Windows-1252 characters happen to be valid UTF-8,
    such as "É»" without any other accent.

    Raises SourceError if a file cannot be opened or read, or is not text.
    """

    def __init__(self, name: str, file: Any = None) -> None:
        """Opens the file `name`; or reads `file`, which needs `peek`, and uses `name` in errors only."""
        self.name = name
        try:
            file = _opened(name) if file is None else file
        except OSError as error:
            raise SourceError(f"{name}: {_why(error)}") from None
        try:
            self._data = _Decompressed(file, name)
            buffer = io.BufferedReader(self._data, _BLOCK)
            head = buffer.peek(_BLOCK)
            encoding = _wide(head)
            if encoding is None:
                _check_text(head, name)
        except MovemaskError:
            file.close()
            raise
        self._lines = io.TextIOWrapper(buffer, encoding or "latin-1")
        self._decoded = str if encoding else _decoded
        self._first = True

    def __enter__(self) -> TextSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lines.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    @property
    def position(self) -> int:
        """Bytes taken from the file on disk. The decompressor may be a little ahead."""
        return self._data.taken

    def readline(self) -> str:
        """The next line; empty after the last."""
        try:
            line = self._lines.readline(_LONGEST + 1)
        except UnicodeDecodeError as error:
            raise SourceError(f"{self.name}: cannot be read to its end: no {error.encoding}: {error.reason}") from None
        if len(line) > _LONGEST:
            raise SourceError(f"{self.name}: a line of more than {_LONGEST >> 20} MiB is neither a game nor a FEN")
        line = self._decoded(line)
        if self._first:
            self._first = False
            line = line.removeprefix("\ufeff")
        return line


def _decoded(line: str) -> str:
    """A line that was read as Latin-1, decoded from its bytes."""
    if line.isascii():
        return line
    try:
        return line.encode("latin-1").decode()
    except UnicodeDecodeError:
        return line.translate(_WINDOWS)


def _wide(head: bytes) -> str | None:
    """Python's name for UTF-16 if a text begins like it; None if not. Without a mark, every other byte must be zero."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    pairs = head[:16]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(pairs) > 7 and not any(pairs[first::2]) and all(pairs[1 - first :: 2]):
            return encoding
    return None


def _check_text(head: bytes, name: str) -> None:
    """Raises SourceError for a beginning that is not text, or is a format other than games and positions."""
    for pattern, advice in _OTHER:
        if pattern.match(head):
            packed = " (gzip and zstandard are read as they are)" if "unpack" in advice else ""
            raise SourceError(f"{name}: {advice}{packed}")
    text = head.rstrip(_PADDING)
    padding = text.count(b"\0")
    strange = len(text.translate(None, _TEXT)) - padding
    if 2 * padding > len(text) or 100 * strange > len(text) or (head and not text):
        raise SourceError(f"{name}: binary data, neither a PGN nor a list of FENs")


class _Decompressed(io.RawIOBase):
    """The text of a file as bytes. Raises SourceError where it cannot be read, or becomes too long for its file."""

    def __init__(self, file: Any, name: str) -> None:
        self._name = name
        self._disk = file
        self._length = 0
        self._read: Callable[[int], bytes] = self._disk.read
        with self._named_errors():
            start = self._disk.peek(4)[:4]
        if start[:2] == _GZIP:
            # `read` would fill the whole block, and fail on damage that is still ahead.
            self._read = gzip.GzipFile(fileobj=self._disk).read1
        elif _ZSTD.match(start):
            require("audit", name)
            import pyarrow as pa

            self._read = pa.CompressedInputStream(pa.PythonFile(self._disk, "r"), "zstd").read

    @property
    def taken(self) -> int:
        """Bytes read from the file; 0 for a pipe, which does not tell."""
        return int(self._disk.tell()) if self._disk.seekable() else 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._disk.close()

    def readinto(self, buffer: Any) -> int:
        with self._named_errors():
            data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._length += len(data)
        if self._length > _UNMEASURED and 0 < _RATIO * self.taken < self._length:
            raise SourceError(
                f"{self._name}: cannot be read to its end: it expands to more than {_RATIO} times its size, which "
                "no collection of games does"
            )
        return len(data)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self._name}: cannot be read to its end: {_why(error)}") from None


def _opened(name: str) -> Any:
    """A file's bytes, buffered."""
    if name == STDIN:
        return io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))
    return Path(name).open("rb")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
