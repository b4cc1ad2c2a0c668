"""The subset of protocol buffers' wire format that weight files and ONNX use.

Source: https://protobuf.dev/programming-guides/encoding/. Files are untrusted: every length is checked against the
remaining bytes before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from movemask.errors import WeightsError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10

Value = int | memoryview


def fields(message: memoryview, where: str) -> Iterator[tuple[int, Value]]:
    """The fields of a message in order: number, and an int (varint) or the bytes of the value.

    Raises WeightsError naming `where` for a message that is cut off or malformed.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at, where)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at, where)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at, where)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise WeightsError(f"{where}: not a protocol buffer (wire type {kind} of field {number})")
        if size > len(message) - at:
            raise WeightsError(f"{where}: cut off: field {number} says {size} bytes, {len(message) - at} are left")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int, where: str) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(message):
            raise WeightsError(f"{where}: cut off in the middle of a number")
        byte = message[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise WeightsError(f"{where}: not a protocol buffer (a number of more than {_LONGEST_VARINT} bytes)")
