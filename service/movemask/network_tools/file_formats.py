"""Describes a file that a command cannot read, and names the command that can.

People give `models add` and `models import` whatever their download left behind: an archive, a web page, a pointer to a
file, another program's file. The first bytes tell them apart, also inside gzip, bzip2, xz and zstandard.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import shlex
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from movemask.errors import ContractError
from movemask.network.files import MAX_NETWORK_BYTES

#: First bytes of lc0's files: field 1 of their message, the 32-bit number 0x1c0.
LC0_START = b"\x0d\xc0\x01\x00\x00"
GZIP, ZIP = b"\x1f\x8b", b"PK"
_START = 4096  # bytes that are looked at
_ADD, _IMPORT = "movemask models add", "movemask models import"


@dataclass(frozen=True, slots=True)
class _Packing:
    """A compression of single files: its first bytes, the command that unpacks it, and its reader here."""

    name: str
    magic: bytes
    command: str
    ending: str
    unpack: Callable[[bytes], bytes]


def _zstandard(packed: bytes) -> bytes:
    if find_spec("pyarrow") is None:  # installed with the extra `audit` only
        return b""
    arrow = import_module("pyarrow")
    start: bytes = arrow.CompressedInputStream(arrow.BufferReader(packed), "zstd").read(_START)
    return start


_PACKINGS = (
    _Packing("gzip", GZIP, "gunzip", ".gz", lambda packed: zlib.decompressobj(31).decompress(packed, _START)),
    _Packing("bzip2", b"BZh", "bunzip2", ".bz2", lambda packed: bz2.BZ2Decompressor().decompress(packed, _START)),
    _Packing("xz", b"\xfd7zXZ", "unxz", ".xz", lambda packed: lzma.LZMADecompressor().decompress(packed, _START)),
    _Packing("zstandard", b"\x28\xb5\x2f\xfd", "zstd -d", ".zst", _zstandard),
)

_TO_ONNX = f"export the network to ONNX ({{}}), then use `{_ADD}`"
_AGAIN = "download the file itself"
#: First bytes of a format, its name in words, and advice.
_MAGICS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes", _TO_ONNX.format("tf2onnx")),
    (b"GGUF", "a GGUF file", _TO_ONNX.format("with its own program")),
    (b"\x93NUMPY", "a NumPy array", _TO_ONNX.format("with its own program")),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", f"unpack it, then use `{_ADD}` or `{_IMPORT}` on the network in it"),
    (b"Rar!", "a RAR archive", f"unpack it, then use `{_ADD}` or `{_IMPORT}` on the network in it"),
    (b"\x7fELF", "a program", "download the network"),
    (b"MZ", "a program for Windows", "download the network"),
    (b"%PDF", "a PDF document", "download the network"),
    (b"\x08\x01\x12", "a TensorFlow SavedModel", _TO_ONNX.format("tf2onnx")),  # no ONNX file is of version 1
)
_PYTORCH = _TO_ONNX.format("torch.onnx.export in PyTorch")
_LEGACY_PYTORCH = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_TEXT = re.compile(rb"[\t\n\f\r\x20-\x7e\x80-\xff]*\Z")
_LFS_SIZE = re.compile(r"^size (\d+)$", re.MULTILINE)
_OLD_LC0 = re.compile(rb"[12]\r?\n-?\d")


def described(file: Path, raw: bytes, command: str) -> str | None:
    """What a file is and what to do with it, in words; None if its first bytes say nothing.

    raw : the content of `file`
    command : `add` or `import`, the user's command; files that it reads are not described
    """
    name, start, packings = file.name, raw[:_START], list[_Packing]()
    while packing := next((known for known in _PACKINGS if start.startswith(known.magic)), None):
        packings.append(packing)
        name = name.removesuffix(packing.ending)
        try:
            start = packing.unpack(raw if len(packings) == 1 else start)[:_START]
        except Exception:  # truncated or damaged: each library has its own errors
            start = b""
    content = _content(start, b"" if packings else raw, name)
    if not packings:
        if content is _LC0 or content is _ONNX:
            return f"{content[command]} {shlex.quote(file.name)}`" if content[command] else None
        return content[command] if content else None
    packed = " in ".join(["", *(packing.name for packing in reversed(packings))])
    if content is None and packings[0].magic == GZIP and len(packings) == 1:
        return None  # both commands read gzip, and report its faults
    if content is None:
        unpack = "; ".join(
            f"`{packing.command} {shlex.quote(file.name)}`" if place == 0 else f"`{packing.command}`"
            for place, packing in enumerate(packings)
        )
        next_command = _IMPORT if name.endswith((".pb", ".pb.gz")) else _ADD
        return f"compressed with{packed.removeprefix(' in')}: unpack it ({unpack}), then `{next_command} {name}`"
    if content is _LC0 or content is _ONNX:
        lc0 = content is _LC0
        what, then = ("an lc0 weight file", _IMPORT) if lc0 else ("an ONNX file", _ADD)
        if [packing.magic for packing in packings] == [GZIP]:  # both commands read gzip
            return None if (command == "import") == lc0 else f"{what}{packed}: use `{then} {shlex.quote(file.name)}`"
        unpacked = shlex.quote(file.name.removesuffix(packings[0].ending))
        commands = f"`{packings[0].command} {shlex.quote(file.name)}`, then `{then} {unpacked}`"
        return f"{what}{packed}: unpack it: {commands}"
    what, _, advice = content[command].partition(": ")
    return f"{what}{packed}: {advice}"


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


#: Messages by command, without the file's name. These two dictionaries are compared by identity.
_LC0 = {"add": f"an lc0 weight file: use `{_IMPORT}", "import": ""}
_ONNX = {"add": "", "import": f"an ONNX file: use `{_ADD}"}


def _content(start: bytes, whole: bytes, name: str) -> dict[str, str] | None:
    """What a file is and what to do with it, by command; None if its first bytes say nothing.

    whole : the content, to look into an archive; empty for a packed file
    """
    if start.startswith(LC0_START):
        return _LC0
    for magic, what, advice in _MAGICS:
        if start.startswith(magic):
            return _both(what, advice)
    if start.startswith(ZIP):
        return _zip(start, whole)
    if start.startswith(_LEGACY_PYTORCH) or re.match(rb"\x80[\x02-\x05]", start):
        legacy = start.startswith(_LEGACY_PYTORCH) or b"torch" in start
        return _both("a PyTorch file" if legacy else "a Python pickle", _PYTORCH)
    if start[4:8] == b"TFL3":
        return _both("a TensorFlow Lite file", _TO_ONNX.format("tf2onnx --tflite"))
    if start[257:262] == b"ustar":
        return _both("a tar archive", f"unpack it (tar xf), then use `{_ADD}` or `{_IMPORT}` on the network in it")
    if re.match(rb".{6}\x00\x00\{\s*\"", start, re.DOTALL):
        return _both("a safetensors file, weights without the network's graph", _TO_ONNX.format("from its own code"))
    if _TEXT.match(start) and start.strip():
        return _text(start)
    if _is_onnx(start):
        return _ONNX
    return None


def _both(what: str, advice: str) -> dict[str, str]:
    return dict.fromkeys(("add", "import"), f"{what}: {advice}")


def _zip(start: bytes, whole: bytes) -> dict[str, str]:
    names: list[str] = []
    try:
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        pass
    if any(name.endswith(("data.pkl", "/constants.pkl")) for name in names) or b"data.pkl" in start:
        return _both("a PyTorch file", _PYTORCH)
    if any(name.endswith(".weights.h5") for name in names):
        return _both("a Keras file", _TO_ONNX.format("tf2onnx"))
    if names and all(name.endswith(".npy") for name in names):
        return _both("NumPy arrays (.npz)", _TO_ONNX.format("from the network's own code"))
    network = next((name for name in names if name.endswith((".onnx", ".pb", ".pb.gz"))), None)
    if network is None:
        return _both("a zip archive", f"unpack it, then use `{_ADD}` or `{_IMPORT}` on the network in it")
    command = _ADD if network.endswith(".onnx") else _IMPORT
    return _both("a zip archive", f"unpack it, then use `{command} {shlex.quote(network)}`")


def _text(start: bytes) -> dict[str, str]:
    head = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    text = head.decode(errors="replace")
    lower = text.lower()
    if lower.startswith(("<!doctype", "<html", "<head", "<?xml", "<!--")) or "<html" in lower:
        page = "the page about it" if "git" in lower or "huggingface" in lower else "a web page"
        return _both("an HTML page, not the file", f"{_AGAIN} (the link leads to {page}; look for 'download' or 'raw')")
    if text.startswith("version https://git-lfs"):
        size = _LFS_SIZE.search(text)
        size_in_words = f" of a file of {int(size[1]):,} bytes" if size else ""
        return _both(
            f"a Git LFS pointer{size_in_words}, not the file", f"run `git lfs pull` in its repository, or {_AGAIN}"
        )
    if "/annex/objects/" in text:
        return _both("a git-annex pointer, not the file", f"run `git annex get` in its repository, or {_AGAIN}")
    if _OLD_LC0.match(head):
        return _both(
            "an lc0 weight file in the text form of 2018", "convert it to .pb.gz first (net.py of lczero-training)"
        )
    if head.startswith((b"{", b"[{")):
        return _both("JSON text, not the file", f"{_AGAIN}; it begins {text[:60]!r}")
    if head.startswith((b"[Event", b"[Site")):
        return _both("games (PGN), not a network", "movemask audit and movemask annotate read games")
    first = text.split("\n", 1)[0].strip()[:60]
    return _both("text, not a network", f"{_AGAIN}; it begins {first!r}")


def _is_onnx(start: bytes) -> bool:
    """Whether these are the first bytes of a ModelProto: its version, then one of its first fields."""
    version = re.match(rb"\x08[\x01-\x7f]", start)
    return version is not None and start[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x28", b"\x32", b"\x3a", b"\x42")
