"""`end_with_parent`: ends a process when the one that started it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time


def end_with_parent(grace: float = 0) -> None:
    """Ends this process when its parent ends, even by SIGKILL. Returns at once; a thread waits.

    multiprocessing gives each child one end of a pipe whose other end only the parent holds, so the system closes it
    with the parent. With `grace`, the process first gets SIGTERM and that many seconds to shut down.
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
