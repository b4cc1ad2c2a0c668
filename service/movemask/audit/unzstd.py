"""`Unzstd`: decompresses zstandard files, which may be damaged, cut short or made to fill the memory."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Mapping
from typing import Protocol, cast

#: Bytes passed to a decompressor at once, which is the resolution of progress.
PIECE = 4096

#: Bytes passed to zstandard at once, which may become 32,768 times as many.
_SIP = 512

#: The largest window that zstandard itself takes unless told otherwise: memory that a file may ask for.
_WINDOW = 1 << 27


class Raw(Protocol):
    """The bytes of a file; `pulled` counts those read."""

    pulled: int

    def read(self, size: int, /) -> bytes | None: ...


class Unzstd(io.RawIOBase):
    """The content of a zstandard file, frame by frame. Raises OSError if it is damaged, EOFError if it is cut short,
    which the library's own stream reader does not report."""

    def __init__(self, raw: Raw, start: int, number: Mapping[int, int], marks: deque[tuple[int, int]]) -> None:
        """`raw` begins at offset `start` of the file. When a frame at an offset in `number` begins, its offset in the
        text and that number are appended to `marks`."""
        import zstandard

        self._raw, self._start, self._number, self._marks = raw, start, number, marks
        self._text = 0  # bytes of text so far
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._damaged = zstandard.ZstdError
        self._frame = self._decompressor.decompressobj()
        self._begun = False
        self._rest = b""  # of the piece read last
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = memoryview(cast(bytearray, buffer))
        while not self._ready:
            if self._frame.eof:
                self._rest = self._frame.unused_data + self._rest
                self._frame, self._begun = self._decompressor.decompressobj(), False
            self._rest = self._rest or self._raw.read(PIECE) or b""
            if not self._rest:
                if self._begun:
                    raise EOFError("the file is cut short")
                return 0
            if not self._begun:
                number = self._number.get(self._start + self._raw.pulled - len(self._rest))
                if number is not None:
                    self._marks.append((self._text, number))
            self._begun = True
            data, self._rest = self._rest[:_SIP], self._rest[_SIP:]
            try:
                self._ready = memoryview(self._frame.decompress(data))
                self._text += len(self._ready)
            except self._damaged as error:
                raise OSError(str(error)) from None
        size = min(len(room), len(self._ready))
        room[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
