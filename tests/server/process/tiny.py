"""A worker process that serves nobody, and starts in a tenth of a second: what it does is in files of a folder."""

from __future__ import annotations

import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from movemask.server.process.worker_process import Order


def work(folder: Path, order: Order, supervisor: Connection) -> None:
    """Serves the models that `models` names, as `NAME DIGEST` in lines. Cannot while `broken` says why. Ends if there
    is `ends`, loads without end while there is `hangs`. Ends at SIGTERM, unless `stays` is there."""
    signal.signal(signal.SIGTERM, lambda *_: None if (folder / "stays").exists() else sys.exit())
    while (folder / "hangs").exists():
        time.sleep(0.05)
    if (folder / "ends").exists():
        sys.exit(7)
    if (folder / "broken").exists():
        supervisor.send((folder / "broken").read_text())
        sys.exit(1)
    models = dict(line.split() for line in (folder / "models").read_text().splitlines())
    if order.needed is not None and not order.needed <= models.keys():
        supervisor.send(f"it needs {sorted(order.needed)}")
        sys.exit(1)
    supervisor.send(models)
    while True:
        signal.pause()
