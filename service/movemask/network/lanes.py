"""`Lanes`: what waits in a queue, by client, and whose turn it is.

Short submissions go before long ones, which get a quarter of each batch nevertheless; within both, clients take turns.
While short ones come, or other clients wait, a long submission gives a batch no more than a slice at a time, so that
nobody waits for a whole batch of someone else's.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence, Sized
from typing import Generic, Protocol, TypeVar

#: Items of a short submission, at most.
SHORT = 8

#: Items that a client gives at one turn, and that long submissions give to a batch while short ones are about.
SLICE = 8

#: Share of a batch that is left to long submissions, however many short ones wait: one in so many.
_LONG_SHARE = 4

#: Seconds that short submissions are expected for after one has come.
_ABOUT = 1.0


class Waiting(Protocol):
    """A submission: `taken` of its items have been taken."""

    client: str
    taken: int

    @property
    def items(self) -> Sized: ...


W = TypeVar("W", bound=Waiting)


class _Turns(Generic[W]):
    """Submissions by client; clients take turns, and each client's own come in order."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[W]] = OrderedDict()
        self.items = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    def add(self, entry: W) -> None:
        self._clients.setdefault(entry.client, deque()).append(entry)
        self.items += len(entry.items) - entry.taken

    def take(self, room: int) -> list[tuple[W, int, int]]:
        """Up to `room` items: each submission, its first item taken now, and how many."""
        parts = []
        while room and self._clients:
            client, entries = next(iter(self._clients.items()))
            turn = room if len(self._clients) == 1 else min(room, SLICE)
            while entries and turn:
                entry = entries[0]
                size = min(turn, len(entry.items) - entry.taken)
                parts.append((entry, entry.taken, size))
                entry.taken += size
                turn, room = turn - size, room - size
                self.items -= size
                if entry.taken == len(entry.items):
                    entries.popleft()
            self._clients.move_to_end(client)
            if not entries:
                del self._clients[client]
        return parts

    def remove(self, entry: W) -> bool:
        entries = self._clients.get(entry.client)
        if entries is None or entry not in entries:
            return False
        entries.remove(entry)
        self.items -= len(entry.items) - entry.taken
        if not entries:
            del self._clients[entry.client]
        return True


class Lanes(Generic[W]):
    """The submissions that wait. Not safe for threads: its queue holds a lock."""

    def __init__(self) -> None:
        self._short: _Turns[W] = _Turns()
        self._long: _Turns[W] = _Turns()
        self._short_came = -_ABOUT

    @property
    def items(self) -> int:
        """Items that wait."""
        return self._short.items + self._long.items

    def before(self, size: int) -> int:
        """Items that are taken before the last of a submission of `size` that came now."""
        return self._short.items + (SLICE if size <= SHORT else self._long.items)

    def add(self, entry: W) -> None:
        """Adds a submission of which nothing has been taken."""
        if len(entry.items) <= SHORT:
            self._short.add(entry)
            self._short_came = time.monotonic()
        else:
            self._long.add(entry)

    def take(self, room: int) -> Sequence[tuple[W, int, int]]:
        """Up to `room` items for one batch: each submission, its first item taken now, and how many."""
        left = room // _LONG_SHARE if self._long.items else 0
        parts = self._short.take(room - left)
        room -= sum(size for _, _, size in parts)
        if parts or self._long.clients > 1 or time.monotonic() - self._short_came < _ABOUT:
            room = min(room, SLICE)
        return parts + self._long.take(room)

    def remove(self, entry: W) -> bool:
        """Takes what is left of a submission out; False if nothing of it waits."""
        return self._short.remove(entry) or self._long.remove(entry)
