"""Tells Linux the names of Python's threads, so that CPU time can be told by thread. Python 3.14 does so itself.

Python imports this module when it starts, if its folder is on PYTHONPATH.
"""

import threading
from contextlib import suppress
from pathlib import Path

_bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


def _named(thread: threading.Thread) -> None:
    with suppress(OSError):  # not Linux
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(thread.name[:15])
    _bootstrap(thread)


threading.Thread._bootstrap_inner = _named  # type: ignore[attr-defined]
