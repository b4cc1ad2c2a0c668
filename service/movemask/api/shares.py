"""`Shares`: middleware that holds each client to its share: positions a second, and positions in flight.

A client is its API key, or its address without one. Each worker process counts for itself.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.access import client_of
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.errors import RateLimited
from movemask.network.lanes import current_client
from movemask.settings import Settings

_SHARE = "movemask.share"

#: Paths that are not counted: probes, and the page, whose files are in memory.
_FREE = frozenset({"/", "/livez", "/readyz", "/metrics"})
_FREE_FILES = "/page/"

#: Clients that are remembered before those with a full bucket are forgotten.
_MANY = 10_000


@dataclass(slots=True)
class _Bucket:
    """What a client may still ask for now, and its positions in flight."""

    tokens: float
    at: float
    in_flight: int = 0


class Share:
    """The share of the client of one request."""

    def __init__(self, bucket: _Bucket, rate: float, burst: int, most_in_flight: int) -> None:
        self._bucket, self._rate, self._burst, self._most = bucket, rate, burst, most_in_flight
        self._held = 0

    def take(self, positions: int) -> None:
        """Takes what the request needs beyond what it has taken; raises RateLimited if the client has had its share.

        A request larger than the burst is let through when the bucket is full, and paid for afterwards.
        """
        bucket, held = self._bucket, self._held
        if self._rate:
            bucket.tokens = self._tokens()
            bucket.at = time.monotonic()
            missing = min(positions, self._burst) - held - bucket.tokens
            if missing > 0:
                raise RateLimited(
                    f"rate limit exceeded: {positions} positions requested, limit {self._rate:g}/s "
                    f"(burst {self._burst})",
                    retry_after=max(1, math.ceil(missing / self._rate)),
                )
        others = bucket.in_flight - held
        if self._most and others and others + positions > self._most:
            raise RateLimited(
                f"too many positions in flight: {positions} requested beside {others}, limit {self._most}",
                retry_after=1,
            )
        bucket.tokens -= positions - held
        bucket.in_flight += positions - held
        self._held = positions

    def release(self) -> None:
        """Ends the request."""
        self._bucket.in_flight -= self._held
        self._held = 0

    def headers(self) -> list[tuple[bytes, bytes]]:
        """`RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers); none without a rate."""
        if not self._rate:
            return []
        tokens = self._tokens()
        window = math.ceil(self._burst / self._rate)
        full = math.ceil((self._burst - tokens) / self._rate)
        return [
            (b"ratelimit-policy", f'"positions";q={self._burst};w={window}'.encode()),
            (b"ratelimit", f'"positions";r={max(0, int(tokens))};t={full}'.encode()),
        ]

    def _tokens(self) -> float:
        bucket = self._bucket
        return min(self._burst, bucket.tokens + (time.monotonic() - bucket.at) * self._rate)


class Shares:
    """Rate-limiting middleware: 429 when a client exceeds its rate, plus the RateLimit headers.

    A request counts as one position before its body is read, valid or not; `Direct` takes the others once they are
    known. Also tells the queue whose request it is.
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._rate, self._burst = settings.client_rate, settings.client_burst
        self._most = settings.client_in_flight
        self._buckets: dict[str, _Bucket] = {}
        self._forgot = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = client_of(scope)
        current_client.set(client)
        if not (self._rate or self._most) or scope["path"] in _FREE or scope["path"].startswith(_FREE_FILES):
            await self._app(scope, receive, send)
            return
        share = Share(self._bucket(client), self._rate, self._burst, self._most)
        scope[_SHARE] = share

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *share.headers()]
            await send(message)

        try:
            share.take(1)
            await self._app(scope, receive, send_with_headers)
        except RateLimited as error:
            problem = problems.problem_of(error)
            self._metrics.problem(problem)
            await refuse(problems.response(problem), scope, receive, send_with_headers)
        finally:
            share.release()

    def _bucket(self, client: str) -> _Bucket:
        bucket = self._buckets.get(client)
        now = time.monotonic()
        if bucket is None:
            if len(self._buckets) >= _MANY and now - self._forgot > 1:
                self._forget(now)
            bucket = self._buckets[client] = _Bucket(self._burst, now)
        return bucket

    def _forget(self, now: float) -> None:
        """Forgets clients that would begin anew anyway."""
        self._forgot = now
        self._buckets = {
            client: bucket
            for client, bucket in self._buckets.items()
            if bucket.in_flight or (self._rate and bucket.tokens + (now - bucket.at) * self._rate < self._burst)
        }


def take(scope: Scope, positions: int) -> None:
    """Takes what a request needs of its client's share in all; raises RateLimited."""
    share: Share | None = scope.get(_SHARE)
    if share is not None:
        share.take(positions)
