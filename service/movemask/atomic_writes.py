"""`atomic_write`: writes a file that readers see whole or not at all; `locked`: lets one process change a folder."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(target: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yields a binary stream to a temporary file in the same folder, which takes the place of
    `target` at the end.

    Symbolic links are followed. A file that was there before keeps its mode, and its owner where
    the system allows it; a new one gets `mode`, less the umask. On an error it stays as it was, and
    the temporary file is removed. A pipe or a device is written directly. Raises OSError that names
    `target`, also for a full disk.
    """
    temporary: Path | None = None
    try:
        known = _stat(target)
        if known is not None and not stat.S_ISREG(known.st_mode):
            with open(target, "wb") as stream:
                yield stream
            return
        file = Path(os.path.realpath(target))
        temporary = file.with_name(f".{secrets.token_hex(8)}.part")
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as stream:
            if known is not None:
                with suppress(PermissionError):
                    _keep_owner(temporary, known)
                os.chmod(temporary, stat.S_IMODE(known.st_mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except OSError as error:
        # The reads and writes of a stream name no file.
        if error.filename is None or str(error.filename) == str(temporary):
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, for which other processes wait. Windows has none. Raises OSError."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _keep_owner(file: Path, known: os.stat_result) -> None:
    if hasattr(os, "chown") and (known.st_uid, known.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(file, known.st_uid, known.st_gid)
