"""Where the frames of a zstandard file begin, found without decompressing it.

Source: RFC 8878, section 3.1: https://www.rfc-editor.org/rfc/rfc8878
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # of the magic number's last three bytes; the first is 0x50 to 0x5f


def is_zstd(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a frame, or of a skippable one, with which pzstd begins."""
    return head[:4] == ZSTD or _is_skippable(head)


def _is_skippable(head: bytes) -> bool:
    return len(head) >= 4 and head[0] >> 4 == 5 and head[1:4] == _SKIPPABLE


def frame_starts(file: Any, size: int) -> Iterator[int]:
    """Offsets of the frames of a seekable file, in order; stops at damage. A skippable frame belongs to the next one.

    It reads the header of each block, of at most 128 KiB, and skips the block."""
    start = at = 0
    while at < size:
        head = _read(file, at, 18)
        if _is_skippable(head):
            at += 8 + int.from_bytes(head[4:8], "little")
            continue
        end = _end(file, at, head, size)
        if end is None:
            return
        yield start
        start = at = end


def _end(file: Any, at: int, head: bytes, size: int) -> int | None:
    """The end of the frame at an offset; None if there is none, or it is cut short."""
    if head[:4] != ZSTD or len(head) < 6:
        return None
    descriptor = head[4]
    single, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    content_size = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    at += 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + content_size
    last = False
    while not last:
        header = int.from_bytes(_read(file, at, 3), "little")
        last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else length)
        if kind == 3 or at > size:
            return None
    return at + 4 * checksum


def _read(file: Any, at: int, count: int) -> bytes:
    file.seek(at)
    return bytes(file.read(count))
