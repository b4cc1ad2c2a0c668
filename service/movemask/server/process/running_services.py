"""`runtime_folder`: the files of a running service; `running_services`: the services of this user that run here.

Each service has a folder in `movemask-UID` of the temporary folder (`TMPDIR`). It holds the metrics of its workers, the
outcomes of its reloads, and the file `service` with its process id and address, by which `movemask reload` finds it.
The service keeps its folder locked. The system drops the lock when the process ends, however it ends; the next start
removes what is not locked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from movemask.atomic_writes import locked
from movemask.errors import SettingsError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class RunningService(NamedTuple):
    """A service: the process id of its supervisor, where it listens, and its runtime folder."""

    pid: int
    address: str
    folder: Path


@contextmanager
def runtime_folder(address: str) -> Iterator[Path | None]:
    """Makes a folder for a service while it runs; None on Windows. Removes the folders of services that were killed.

    Raises SettingsError if another service of this user has the address, perhaps without listening yet: the system
    would give it to both. Raises SettingsError or OSError if there can be no folder.
    """
    if fcntl is None:
        yield None
        return
    base = _base()
    base.mkdir(mode=0o700, exist_ok=True)
    if base.lstat().st_uid != os.geteuid():
        raise SettingsError(f"TMPDIR: {base} belongs to another user")
    with locked(base):  # another service that starts now waits
        others = running_services()
        for ended in {*base.iterdir()} - {other.folder for other in others}:
            shutil.rmtree(ended, ignore_errors=True)
        for other in others:
            if other.address == address:
                fault = f"process {other.pid}, another movemask, has {address}, or will have it when it has loaded"
                raise SettingsError(f"MOVEMASK_PORT: {fault}; give another --port")
        folder = Path(tempfile.mkdtemp(dir=base))
        (folder / _FILE).write_text(f"{os.getpid()} {address}")
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def running_services() -> list[RunningService]:
    """Returns the services of this user that run on this machine, or in this container; none on Windows."""
    services: list[RunningService] = []
    for folder in sorted(_base().glob("*")) if fcntl is not None else []:
        with suppress(OSError, ValueError):  # it ends just now
            if _is_locked(folder):
                pid, address = (folder / _FILE).read_text().split(" ", 1)
                services.append(RunningService(int(pid), address, folder))
    return services


_FILE = "service"


def _base() -> Path:
    return Path(tempfile.gettempdir()) / f"movemask-{os.geteuid()}"


def _is_locked(folder: Path) -> bool:
    """Returns whether the service of a runtime folder runs. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
