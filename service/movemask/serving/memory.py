"""`Returned`: gives memory that a crowd of connections has used back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: Connections that have gone at once, after which memory is given back.
_CROWD = 100


def _trim() -> None:
    """Gives back the memory that glibc keeps between pieces in use; other systems have no such call."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


class Returned:
    """Watches the number of connections of a process. `trim` gives free memory back."""

    def __init__(self, trim: Callable[[], None] = _trim) -> None:
        self._trim, self._most = trim, 0

    def looked(self, connections: int) -> None:
        """Notes how many connections are open; called now and then."""
        self._most = max(self._most, connections)
        if self._most - connections >= _CROWD:
            self._most = connections
            self._trim()
