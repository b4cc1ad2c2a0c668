"""`SharedMetrics`: the files through which the workers of a service share their metrics.

prometheus_client maps these files into memory. If the file system has no room for a page of such a file, the process
ends (SIGBUS): a full /dev/shm would end every worker. So the files have their whole size before a worker starts.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from movemask.errors import SettingsError

#: The variable by which prometheus_client knows the folder.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"

#: prometheus_client's files of a worker, `KIND_NUMBER.db`, and the size of each in bytes: enough for all kinds of
#: leakage of a dozen networks; for more, prometheus_client doubles a file. It does not document the names; a test
#: compares them.
FILES = {"counter": 1 << 18, "histogram": 1 << 20, "gauge_livesum": 1 << 16, "gauge_livemin": 1 << 16}

_IN_MEMORY = Path("/dev/shm")


class SharedMetrics:
    """The folder, until closed. Raises SettingsError if there is no room for the files of `workers` workers."""

    def __init__(self, workers: int) -> None:
        needed = workers * sum(FILES.values())
        found = []
        for parent in (_IN_MEMORY, Path(tempfile.gettempdir())):
            with ExitStack() as stack:
                try:
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="movemask-metrics-", dir=parent))
                    self._folder = Path(folder)
                    for worker in range(workers):
                        self.prepare(worker)
                except OSError as error:
                    found.append(f"{parent}: {os.strerror(error.errno or 0).lower()}")
                    continue
                self._files = stack.pop_all()
                os.environ[FOLDER] = folder  # for the workers
                return
        raise SettingsError(
            f"MOVEMASK_WORKERS: {workers} workers share their metrics through files of {needed / 2**20:.1f} MiB in a "
            f"temporary folder, and none has room ({'; '.join(found)}); in Docker, raise --shm-size or add --tmpfs /tmp"
        )

    def prepare(self, worker: int) -> None:
        """Makes the files of a worker that is about to start. Counters of the worker before it stay, and gauges begin
        at 0. Raises OSError if there is no room."""
        for kind, size in FILES.items():
            file = self._folder / f"{kind}_{worker}.db"
            if not file.exists():
                file.write_bytes(bytes(size))
            elif kind.startswith("gauge_"):
                with file.open("r+b") as gauges:  # in place, which takes no room
                    gauges.write(bytes(file.stat().st_size))

    def close(self) -> None:
        """Deletes the folder."""
        os.environ.pop(FOLDER, None)
        self._files.close()
