"""What `models add` and `models import` say of a file that they cannot read, also in gzip."""

from __future__ import annotations

import zlib
from pathlib import Path

from movemask import signatures
from movemask.errors import ContractError
from movemask.network.files import MAX_NETWORK_BYTES
from movemask.signatures import START

GZIP = b"\x1f\x8b"


def described(raw: bytes, reads: str) -> str | None:
    """What a file is and what to do with it, in words; None if its first bytes say nothing.

    raw : its content, or the beginning
    reads : `signatures.ONNX` or `signatures.LC0`, what the user's command reads
    """
    if not raw.startswith(GZIP):
        return signatures.described(raw[:START], reads)
    try:
        start = zlib.decompressobj(31).decompress(raw[: 2 * START], START)
    except zlib.error:
        return None  # both commands read gzip, and report its faults
    found = signatures.described(start, reads)
    return found and f"in gzip: {found}"


def unpacked(file: Path, raw: bytes) -> bytes:
    """The content of a gzipped ONNX file; other content unchanged. Raises ContractError."""
    if not raw.startswith(GZIP):
        return raw
    try:
        reader = zlib.decompressobj(31)
        network = reader.decompress(raw, MAX_NETWORK_BYTES + 1)
    except zlib.error as error:
        raise ContractError(f"{file.name}: damaged gzip: {error}; download it again") from None
    if len(network) > MAX_NETWORK_BYTES:
        raise ContractError(f"{file.name}: unpacks to more than {MAX_NETWORK_BYTES} bytes")
    if not reader.eof:
        raise ContractError(f"{file.name}: cut off: the gzip stream has no end; download it again")
    return network
