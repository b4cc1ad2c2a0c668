"""API keys: who may use which routes. Memory and file hold only SHA-256 hashes.

A key is 32 random bytes, which nobody can guess, so a plain hash is enough. The lines of the file are
`NAME SCOPE[,SCOPE…] sha256:HEX`; `movemask keys new` writes them.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from movemask.atomic_writes import atomic_write, locked
from movemask.errors import KeysError, SettingsError
from movemask.network.files import read_regular

_MOST_BYTES = 1 << 20
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{20,512}")  # RFC 6750's characters
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_LINE = re.compile(r"(\S+)\s+(\S+)\s+sha256:([0-9a-f]{64})")


class KeyScope(Enum):
    """What a key may do."""

    POLICY = "policy"  # ask for policies, moves and games, and have one's own numbers judged
    LEAKAGE = "leakage"  # read the figures of the ledger
    POSITIONS = "positions"  # read the positions that others have asked about
    METRICS = "metrics"  # read /metrics


@dataclass(frozen=True, slots=True)
class Key:
    """A key: its name, which logs may show, the SHA-256 of its text, and its scopes."""

    name: str
    digest: bytes
    scopes: frozenset[KeyScope]

    @property
    def line(self) -> str:
        """Its line of the file."""
        scopes = ",".join(scope.value for scope in KeyScope if scope in self.scopes)
        return f"{self.name} {scopes} sha256:{self.digest.hex()}"


class Keys:
    """The keys of MOVEMASK_API_KEYS and MOVEMASK_API_KEYS_FILE, read once. Raises KeysError for an invalid file.

    A worker gets them in shared memory. A pipe holds about a thousand keys, and the supervisor would wait for ever for
    a worker that dies before it has read more.
    """

    def __init__(self, listed: Sequence[Key], file: Path | None) -> None:
        keys = _distinct((*listed, *(() if file is None else read_keys(file))))
        self._keys = {key.digest: key for key in keys}
        lines = "\n".join(key.line for key in keys).encode() + b"\n"
        self._lines = multiprocessing.get_context("spawn").RawArray("c", len(lines))
        self._lines.raw = lines

    def __getstate__(self) -> Any:
        return self._lines

    def __setstate__(self, lines: Any) -> None:
        self._lines = lines
        self._keys = {key.digest: key for key in _keys_of(lines.raw, Path())}

    @classmethod
    def of(cls, listed: str, file: Path | None) -> Keys | None:
        """Reads the keys of both settings. Returns None without keys: everything is open. Raises SettingsError."""
        name = "MOVEMASK_API_KEYS"
        try:
            keys = _listed_keys(listed)
            if not keys and file is None:
                return None
            name = "MOVEMASK_API_KEYS_FILE"
            return cls(keys, file)
        except KeysError as error:
            raise SettingsError(f"{name}: {error}") from None

    def find(self, token: str) -> Key | None:
        """Returns the key with this text, or None.

        The time of a look-up by the hash of a random key tells nothing of use to guess one.
        """
        return self._keys.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())


def new_key(name: str, scopes: Iterable[KeyScope]) -> tuple[Key, str]:
    """Makes a random key. Returns it with its text, which is stored nowhere. Raises KeysError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise KeysError(f"name: {name!r} must be up to 64 letters, digits and . _ @ -")
    text = f"mm_{secrets.token_urlsafe(32)}"
    return Key(name, hashlib.sha256(text.encode()).digest(), frozenset(scopes)), text


def read_keys(file: Path) -> tuple[Key, ...]:
    """Reads the keys of a file. Raises KeysError, which names the line."""
    return _keys_of(_content(file), file)


@contextmanager
def changed_keys(file: Path) -> Iterator[list[Key]]:
    """Yields the keys of a file, which may be missing, as a list, and writes the changed list at the end.

    Another process that changes the file at the same time waits. Raises KeysError and OSError; the file then stays.
    """
    with locked(Path(os.path.realpath(file)).parent):
        keys = list(read_keys(file)) if file.exists() else []
        yield keys
        write_keys(file, keys)


def write_keys(file: Path, keys: Sequence[Key]) -> None:
    """Replaces a file of keys, or a symbolic link's target. A new file is readable by its owner only; an old one keeps
    owner and mode. Raises OSError."""
    with atomic_write(file, mode=0o600) as stream:
        stream.writelines(f"{key.line}\n".encode() for key in keys)


def _content(file: Path) -> bytes:
    try:
        content = read_regular(file, _MOST_BYTES)
    except OSError as error:
        raise KeysError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise KeysError(f"{file}: more than {_MOST_BYTES} bytes")
    return content


def _keys_of(content: bytes, file: Path) -> tuple[Key, ...]:
    keys = []
    for number, raw in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if line := raw.partition("#")[0].strip():
            keys.append(_key_of(line, f"{file}: line {number}"))
    return _distinct(keys)


def _key_of(line: str, place: str) -> Key:
    match = _LINE.fullmatch(line)
    if match is None or not _NAME.fullmatch(match[1]):
        # The line is not shown: it may be a key in clear text.
        raise KeysError(
            f"{place}: is not `NAME SCOPE,SCOPE sha256:HEX`; `movemask keys new` writes such lines"
        )
    return Key(match[1], bytes.fromhex(match[3]), _scopes(match[2].split(","), place))


def _listed_keys(text: str) -> tuple[Key, ...]:
    """Reads the keys of MOVEMASK_API_KEYS: `KEY[:SCOPE+SCOPE]`, separated by commas. Raises KeysError."""
    keys = []
    for number, entry in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        token, colon, names = entry.partition(":")
        if not _TOKEN.fullmatch(token):
            raise KeysError(f"key {number}: must be 20 to 512 letters, digits and . _ ~ + / = -")
        scopes = _scopes(names.split("+"), f"key {number}") if colon else frozenset(KeyScope)
        keys.append(Key(f"env-{number}", hashlib.sha256(token.encode()).digest(), scopes))
    return _distinct(keys)


def _scopes(names: Sequence[str], place: str) -> frozenset[KeyScope]:
    known = {scope.value: scope for scope in KeyScope}
    if unknown := [name for name in names if name not in known]:
        raise KeysError(
            f"{place}: there is no scope {unknown[0][:20]!r}; available: {', '.join(known)}"
        )
    return frozenset(known[name] for name in names)


def _distinct(keys: Sequence[Key]) -> tuple[Key, ...]:
    """Returns the keys. Raises KeysError if two have one name or are the same."""
    names: set[str] = set()
    digests: set[bytes] = set()
    for key in keys:
        if key.name in names:
            raise KeysError(f"two keys are named {key.name}")
        if key.digest in digests:
            raise KeysError(f"{key.name} is the same key as another")
        names.add(key.name)
        digests.add(key.digest)
    return tuple(keys)
