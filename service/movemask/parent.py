"""`end_with_parent`: ends a process when its parent process ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time


def end_with_parent(grace: float = 0) -> None:
    """Ends this process when its parent ends, even by SIGKILL. Returns at once; a thread waits.

    multiprocessing gives each child one end of a pipe. Only the parent has the other end, which the system closes when
    the parent ends. With `grace`, the process first gets SIGTERM and `grace` seconds to shut down.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        if grace:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
