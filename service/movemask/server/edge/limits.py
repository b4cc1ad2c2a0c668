"""The limits of one request and of each client.

`RequestLimits` are those of one request. `RateLimit` counts a client's positions in all workers
together, and `BytesInFlight` its bytes in one worker.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from movemask.errors import Overloaded, RateLimited
from movemask.server.edge.context import RequestContext
from movemask.server.edge.shared_rates import Rates

#: Bytes of one request that are neither counted nor refused: all connections together hold few of them.
_UNCOUNTED = 4096

#: Bytes up to which a client may use the reserve.
_LITTLE = 1 << 20

#: Bytes per second below which a sender or reader gives way, while the pool is half full, and while it is overfull.
_SLOW, _SLOW_OVERFULL = 4096, 65_536


class RequestLimits(NamedTuple):
    """What a request may hold: bytes of its body, moves of a position, and positions (or ratings, or models)."""

    body_bytes: int
    moves: int
    positions: int


class RateLimit:
    """A token bucket of positions for each client.

    The workers share the time at which a client's bucket is full again (the generic cell rate algorithm: ITU-T I.371,
    annex A). Two workers that charge a client within the same microseconds may charge one cost alone.

    Parameters
    ----------
    rate : positions per second; 0: no limit, and nothing is charged
    burst : positions of a full bucket
    rates : of the service
    clock : the same for all processes of a machine
    """

    def __init__(
        self, rate: float, burst: int, rates: Rates, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._rates, self._clock = rate, burst, rates, clock

    def __bool__(self) -> bool:
        return self._rate > 0

    def charge(self, context: RequestContext, positions: int) -> None:
        """Sets the cost of a request to `positions`. Raises RateLimited if the bucket holds fewer.

        A request above the burst is admitted when the bucket is full, and paid off afterwards.
        """
        client = self._rates.bucket(context.client)
        missing = min(positions, self._burst) - context.charged - self._tokens(client)
        if missing > 0:
            raise RateLimited(
                f"rate limit exceeded: {positions} positions requested, limit {self._rate:g}/s (burst {self._burst})",
                retry_after=max(1, math.ceil(missing / self._rate)),
                positions=positions,
            )
        full_at = max(self._rates[client], self._clock())
        self._rates[client] = full_at + (positions - context.charged) / self._rate
        context.charged = positions

    @property
    def policy(self) -> bytes:
        """The value of `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers)."""
        return f'"positions";q={self._burst};w={math.ceil(self._burst / self._rate)}'.encode()

    def left(self, client: str) -> bytes:
        """Returns the value of `RateLimit`: the positions left, and the seconds until the bucket is
        full.
        """
        tokens = self._tokens(self._rates.bucket(client))
        full = math.ceil((self._burst - tokens) / self._rate)
        return f'"positions";r={max(0, int(tokens))};t={full}'.encode()

    def _tokens(self, client: int) -> float:
        """Positions in a client's bucket; negative while a large request is being paid off."""
        seconds = max(0.0, self._rates[client] - self._clock())
        return self._burst - seconds * self._rate


class BytesInFlight:
    """Bytes of bodies and large answers that a worker holds: at most `most`, half of them for one
    client.

    An answer has been computed, so it is counted and not refused. It is the slow readers that make
    room.

    total : now. One client counts with half of `most` at most: if it does not read its answers, it
        blocks nobody else
    """

    def __init__(self, most: int) -> None:
        self._most, self.total = most, 0
        self._of_clients: Counter[str] = Counter()

    @property
    def least_pace(self) -> int:
        """Bytes per second below which a client that sends a body or reads an answer gives way; 0: any pace will do."""
        if self.total < self._most // 2:
            return 0
        return _SLOW if self.total <= self._most else _SLOW_OVERFULL

    def make_room(self, context: RequestContext, size: int = 0) -> None:
        """Raises Overloaded if `size` more bytes would exceed the limit of all clients or of this
        one.

        A request is admitted if there is no other. One that holds little is refused only to a
        client that holds more than its half. Clients with at most 1 MiB may use a reserve, a
        quarter of `most`, that greedy clients cannot take.
        """
        total = self.total
        if total + size <= self._most // 2:
            return
        own, theirs = context.in_flight, self._of_clients[context.client]
        most = self._most + (self._most // 4 if theirs + size <= _LITTLE else 0)
        if own + size > _UNCOUNTED and total > own and total + size > most:
            fault = f"{total >> 20} MiB are in flight; the service takes {self._most >> 20} MiB"
        elif theirs > own and theirs + size > self._most // 2:
            fault = f"{theirs >> 20} MiB of yours are in flight; the service takes half of {self._most >> 20} MiB"
        else:
            return
        raise Overloaded(fault, retry_after=1)

    def take(self, context: RequestContext, size: int) -> None:
        """Makes room for `size` more bytes of a request, and counts them; raises Overloaded."""
        self.make_room(context, size)
        self.hold(context, size)

    def hold(self, context: RequestContext, size: int) -> None:
        """Counts `size` more bytes of a request, or fewer if it is negative. Small requests are not counted."""
        context.in_flight += size
        self._count(context, context.in_flight if context.in_flight > _UNCOUNTED else 0)

    def release(self, context: RequestContext) -> None:
        """Ends a request: it holds nothing."""
        context.in_flight = 0
        self._count(context, 0)

    def _count(self, context: RequestContext, counted: int) -> None:
        """Sets how many bytes of a request are counted."""
        size = counted - context.counted
        if not size:
            return
        before = self._of_clients[context.client]
        after, room = before + size, self._most // 2
        self.total += min(after, room) - min(before, room)
        self._of_clients[context.client] = after
        if not after:
            del self._of_clients[context.client]
        context.counted = counted
