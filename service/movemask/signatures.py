"""What a file is by its first bytes, and what to do with it: people give a command whatever a download left behind."""

from __future__ import annotations

import re
import zlib

ONNX, LC0 = "an ONNX file", "an lc0 weight file"

GZIP = b"\x1f\x8b"

#: Bytes of a file that are looked at.
START = 4096

_UNPACK = "unpack it first"
_EXPORT = "export the network to ONNX, as torch.onnx.export and tf2onnx do, then use `movemask models add`"
_AGAIN = "download the file itself"
_TABLE = (
    (rb"PK\x03\x04.{26,200}?data\.pkl", "a PyTorch file", _EXPORT),
    (rb"\x80[\x02-\x05]", "a PyTorch file or another pickle", _EXPORT),
    (rb"PK(\x03\x04|\x05\x06)", "a zip archive", _UNPACK),
    (rb"BZh[1-9]1AY&SY", "compressed by bzip2", _UNPACK),
    (rb"\xfd7zXZ\0", "compressed by xz", _UNPACK),
    (rb"\x28\xb5\x2f\xfd", "compressed by zstandard", _UNPACK),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
    (rb".{257}ustar", "a tar archive", _UNPACK),
    (rb"(\xef\xbb\xbf)?\s*<(?i:!doctype|html|\?xml|head)", "a web page", _AGAIN),
    (rb"\s*\{\s*\"\w+\"\s*:", "JSON text", _AGAIN),
    (rb"version https://git-lfs", "a Git LFS pointer in place of the file", "run `git lfs pull`"),
    (
        rb"\S{0,200}/annex/objects/",
        "a git-annex pointer in place of the file",
        "run `git annex get`",
    ),
    (rb"\xff\xfe|\xfe\xff|([ -~]\0){4}|(\0[ -~]){4}", "UTF-16 text", "save it as UTF-8"),
    (rb"%PDF-", "a PDF", "it is neither games nor a network"),
    (rb"\{\\rtf", "an RTF document", "save it as plain text"),
    (rb"Scid\.s[ig]\0", "a Scid database", "export its games as PGN"),
    (rb"\x0d\xc0\x01\0\0", LC0, "`movemask models import` reads it"),
    (rb"\x08\x01\x12", "a TensorFlow SavedModel", _EXPORT),  # no ONNX file is of version 1
    (rb"\x08[\x01-\x7f][\x12\x1a\x22\x28\x32\x3a\x42]", ONNX, "`movemask models add` reads it"),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes", _EXPORT),
    (rb".{6}\0\0\{\s*\"", "a safetensors file, weights without the network's graph", _EXPORT),
    (rb".{4}TFL3", "a TensorFlow Lite file", _EXPORT),
)
#: First bytes, what the file is, and advice.
SIGNATURES = [(re.compile(magic, re.DOTALL), what, advice) for magic, what, advice in _TABLE]


def described(raw: bytes, reads: str = "") -> str | None:
    """Returns what a file is and what to do with it, also in gzip.

    None if its first bytes say nothing, or name `reads`, which the caller reads.
    """
    where, start = "", raw[:START]
    if raw.startswith(GZIP):
        try:
            where, start = "in gzip: ", zlib.decompressobj(31).decompress(raw[: 2 * START], START)
        except zlib.error:
            return None  # who reads gzip reports its faults
    for magic, what, advice in SIGNATURES:
        if magic.match(start):
            return None if what == reads else f"{where}{what}: {advice}"
    return None
