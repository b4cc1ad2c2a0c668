"""`Turns`: an event loop's selector that hands out few events at a time, and those of refused connections last.

asyncio's own hands out every event there is. When a thousand connections have a request ready, one round of the loop
then reads them all, and whatever takes several rounds, as an answer does, takes several times as long as refusing a
thousand requests. With a few at a time rounds stay short, and answers, timers and probes do not wait for the crowd.
"""

from __future__ import annotations

import asyncio
import math
import select as system
import selectors
from collections.abc import Mapping
from typing import Any, cast

#: Events of one round, and of connections that have been refused.
_MOST, _MOST_REFUSED = 64, 32


class Turns(selectors.BaseSelector):
    """A selector for Linux, on two epolls: those who come again after a refusal wait behind all others, and take turns
    among themselves. Like them, `refused` and `taken` are called in the event loop."""

    def __init__(self) -> None:
        self._first, self._last = system.epoll(), system.epoll()
        self._first.register(self._last.fileno(), system.EPOLLIN)
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._refused: set[int] = set()

    def refused(self, descriptor: int) -> None:
        """Puts a connection behind those that have not been refused."""
        if descriptor not in self._refused:
            self._move(descriptor, self._first, self._last)
            self._refused.add(descriptor)

    def taken(self, descriptor: int) -> None:
        """Puts a connection back among the others; must be called before its descriptor is closed."""
        if descriptor in self._refused:
            self._move(descriptor, self._last, self._first)
            self._refused.remove(descriptor)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As in `selectors`, for a number or a file."""
        key = selectors.SelectorKey(fileobj, _number(fileobj), events, data)
        if key.fd in self._keys:
            raise KeyError(f"{fileobj!r} is registered")
        self._epoll(key.fd).register(key.fd, _mask(events))
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """As in `selectors`."""
        key = self._keys.pop(_number(fileobj))
        self._epoll(key.fd).unregister(key.fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As in `selectors`."""
        known = self._keys[_number(fileobj)]
        if known.events != events:
            self._epoll(known.fd).modify(known.fd, _mask(events))
        key = self._keys[known.fd] = known._replace(events=events, data=data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As in `selectors`, but not all that is ready; the rest comes next time, those that wait longest first."""
        wait = None if timeout is None else max(0.0, math.ceil(1e3 * timeout) * 1e-3)
        found = self._first.poll(wait, _MOST)
        if self._refused:
            found += self._last.poll(0, _MOST_REFUSED)
        ready = []
        for descriptor, event in found:
            key = self._keys.get(descriptor)
            if key is not None:
                wanted = selectors.EVENT_WRITE if event & ~system.EPOLLIN else 0
                wanted |= selectors.EVENT_READ if event & ~system.EPOLLOUT else 0
                ready.append((key, wanted & key.events))
        return ready

    def close(self) -> None:
        """Closes both epolls."""
        self._first.close()
        self._last.close()
        self._keys.clear()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The keys, by number."""
        return self._keys

    def _epoll(self, descriptor: int) -> system.epoll:
        return self._last if descriptor in self._refused else self._first

    def _move(self, descriptor: int, before: system.epoll, after: system.epoll) -> None:
        key = self._keys.get(descriptor)
        if key is not None:  # else it is not being read, and will be registered where it belongs
            before.unregister(descriptor)
            after.register(descriptor, _mask(key.events))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop on `Turns`; on asyncio's own selector where there is no epoll."""
    if not hasattr(system, "epoll"):
        return asyncio.new_event_loop()
    turns = Turns()
    loop = asyncio.SelectorEventLoop(turns)
    loop.turns = turns  # type: ignore[attr-defined]
    return loop


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns | None:
    """The selector of a loop that `new_event_loop` has made."""
    return cast("Turns | None", getattr(loop, "turns", None))


def _number(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def _mask(events: int) -> int:
    return (system.EPOLLIN if events & selectors.EVENT_READ else 0) | (
        system.EPOLLOUT if events & selectors.EVENT_WRITE else 0
    )
