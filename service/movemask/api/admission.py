"""`AdmissionControl`: middleware that refuses requests before their body is read: by host, key, rate, bytes in flight.

It also finds the client behind proxies, and adds the security headers to every answer.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.context import POLLED, RequestContext, context_of
from movemask.api.keys import Keys, KeyScope
from movemask.api.problems import ProblemError
from movemask.api.telemetry import Metrics
from movemask.errors import MovemaskError, Overloaded, RateLimited
from movemask.serving.tally import AT, CLIENT_HELD, HELD, IN_FLIGHT, SPENT, TOKENS, Tally, client_address
from movemask.settings import Settings

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 65_536

#: Bytes that each request may hold without being counted: all connections together hold few of them.
_UNCOUNTED = 4096

#: Bytes that a client holds at most to count as holding little.
_LITTLE = 1 << 20

#: Bytes of bodies and large answers in flight, in all processes together.
_MOST_BYTES = 64 << 20

#: Paths that do not count against a client's rate: probes, and the page, whose files are in memory.
_FREE = POLLED | {"/"}
_FREE_FILES = "/page/"

#: Clients that are remembered before those with a full bucket are forgotten.
_MANY = 10_000


#: What a request needs one of, by the beginning of its path; the first that fits counts. A test compares this and OPEN
#: with the routes.
SCOPES: tuple[tuple[str, frozenset[KeyScope]], ...] = (
    ("/v1/leakage/positions", frozenset({KeyScope.POSITIONS})),
    ("/v1/leakage/worst", frozenset({KeyScope.POSITIONS})),
    ("/v1/leakage", frozenset({KeyScope.AUDIT})),
    ("/v1/version", frozenset(KeyScope)),
    ("/v1/models", frozenset({KeyScope.POLICY, KeyScope.AUDIT})),
    ("/v1", frozenset({KeyScope.POLICY})),
    ("/metrics", frozenset({KeyScope.METRICS})),
)

#: Paths that need no key: probes, and documentation and a page that are the same everywhere.
OPEN = ("/page", "/livez", "/readyz", "/docs", "/redoc", "/openapi.json", "/static-offline-docs")

_REALM = 'Bearer realm="movemask"'

#: Pages whose scripts are their own, by the beginning of their path. Swagger UI and ReDoc have a script in the page.
_INLINE = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: The page: its own files, and what they ask of the service.
_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NOTHING = "default-src 'none'; frame-ancestors 'none'"  # in everything else nothing is a page
POLICIES: dict[str, str] = {"/": _PAGE, "/docs": _INLINE, "/redoc": _INLINE}

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@dataclass(slots=True)
class _Bucket:
    """What a client may still ask for, as this process knows it: `seen` positions asked of all are taken off."""

    row: int
    tokens: float
    at: float
    seen: float


class RateLimit:
    """A token bucket for each client of the service: positions a second, and positions in flight; 0 for no limit.

    Each process keeps a bucket, fills it up by the clock, and takes off what all have spent, so that the buckets of a
    client agree. `clock` is the same for all processes of a machine.
    """

    def __init__(
        self, rate: float, burst: int, in_flight: int, tally: Tally, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._most, self._tally, self._clock = rate, burst, in_flight, tally, clock
        self._buckets: dict[str, _Bucket] = {}
        self._forgot = 0.0

    def __bool__(self) -> bool:
        return bool(self._rate or self._most)

    def charge(self, context: RequestContext, positions: int) -> None:
        """Sets the number of positions that a request costs its client to `positions`. Raises RateLimited if they
        exceed the client's rate or its positions in flight. A request larger than the burst is let through when the
        bucket is full, and paid for afterwards."""
        bucket, charged = self._bucket(context.client), context.charged
        if self._rate:
            missing = min(positions, self._burst) - charged - bucket.tokens
            if missing > 0:
                raise RateLimited(
                    f"rate limit exceeded: {positions} positions requested, limit {self._rate:g}/s "
                    f"(burst {self._burst})",
                    retry_after=max(1, math.ceil(missing / self._rate)),
                )
        others = int(self._tally.total(bucket.row + IN_FLIGHT)) - charged
        if self._most and others and others + positions > self._most:
            raise RateLimited(
                f"too many positions in flight: {positions} requested in addition to {others}, limit {self._most}",
                retry_after=1,
            )
        self._tally.add(bucket.row + SPENT, positions - charged)
        self._tally.add(bucket.row + IN_FLIGHT, positions - charged)
        context.charged = positions

    def release(self, context: RequestContext) -> None:
        """Ends a request: its positions are no longer in flight."""
        if context.charged:
            self._tally.add(self._tally.client(context.client) + IN_FLIGHT, -context.charged)
            context.charged = 0

    def headers(self, client: str) -> list[tuple[bytes, bytes]]:
        """`RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers); none without a rate."""
        if not self._rate:
            return []
        tokens = self._bucket(client).tokens
        window = math.ceil(self._burst / self._rate)
        full = math.ceil((self._burst - tokens) / self._rate)
        return [
            (b"ratelimit-policy", f'"positions";q={self._burst};w={window}'.encode()),
            (b"ratelimit", f'"positions";r={max(0, int(tokens))};t={full}'.encode()),
        ]

    def _bucket(self, client: str) -> _Bucket:
        """The bucket of a client, filled up to now."""
        now = self._clock()
        bucket = self._buckets.get(client)
        if bucket is None:
            if len(self._buckets) >= _MANY and now - self._forgot > 1:
                self._forget(now)
            row = self._tally.client(client)
            tokens, at = self._tally.latest(row) or (self._burst, now)
            bucket = self._buckets[client] = _Bucket(row, tokens, at, self._tally.total(row + SPENT))
        spent = self._tally.total(bucket.row + SPENT)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._rate) - (spent - bucket.seen)
        bucket.at, bucket.seen = now, spent
        self._tally.put(bucket.row + TOKENS, bucket.tokens)
        self._tally.put(bucket.row + AT, now)
        return bucket

    def _forget(self, now: float) -> None:
        """Forgets clients that would begin anew anyway."""
        self._forgot = now
        self._buckets = {
            client: bucket
            for client, bucket in self._buckets.items()
            if self._rate and bucket.tokens + (now - bucket.at) * self._rate < self._burst
        }


class BytesInFlight:
    """Bytes of bodies and large answers that the service holds, at most `most` of all clients and half of it of one."""

    def __init__(self, most: int, tally: Tally) -> None:
        self._most, self._tally = most, tally

    @property
    def total(self) -> int:
        """Bytes held in all."""
        return int(self._tally.total(HELD))

    def make_room(self, context: RequestContext, size: int = 0) -> None:
        """Raises Overloaded if there is no room for more bytes of a request beside those it holds, or its client has
        half of the room. A lone request is let through. Clients that hold little have a quarter of the room beside it,
        so that two greedy ones leave some for others."""
        own, total = context.held, self.total
        if total + size <= self._most // 2:
            return
        theirs = int(self._tally.total(self._tally.client(context.client) + CLIENT_HELD))
        most = self._most + (self._most // 4 if theirs + size <= _LITTLE else 0)
        if total > own and total + size > most:
            fault = f"{total >> 20} MiB are in flight; the service takes {self._most >> 20} MiB"
        elif theirs > own and theirs + size > self._most // 2:
            fault = f"{theirs >> 20} MiB of yours are in flight; the service takes half of {self._most >> 20} MiB"
        else:
            return
        raise Overloaded(fault, retry_after=1)

    def take(self, context: RequestContext, size: int) -> None:
        """Makes room for more bytes of a request, and counts them; raises Overloaded."""
        self.make_room(context, size)
        self.hold(context, size)

    def hold(self, context: RequestContext, size: int) -> None:
        """Counts `size` more bytes of a request, from the first few thousand on; fewer if it is negative. Of one
        client's, at most half of the limit counts, divided equally among processes: answers that it does not read keep
        nobody else out."""
        context.held += size
        counted = context.held if context.held > _UNCOUNTED else 0
        if counted != context.counted:
            self._count(context, counted)

    def release(self, context: RequestContext) -> None:
        """Ends a request: it holds nothing."""
        context.held = 0
        if context.counted:
            self._count(context, 0)

    def _count(self, context: RequestContext, held: int) -> None:
        row, size = self._tally.client(context.client) + CLIENT_HELD, held - context.counted
        before, room = self._tally.own(row), self._most // 2 // self._tally.processes
        self._tally.add(row, size)
        self._tally.add(HELD, min(before + size, room) - min(before, room))
        context.counted = held


@lru_cache(maxsize=256)
def security_headers(path: str, scheme: str) -> list[tuple[bytes, bytes]]:
    """The security headers of an answer; an answer's own header of the same name wins."""
    pages = (policy for page, policy in POLICIES.items() if path == page or path.startswith(page + "/"))
    found = [*_ALWAYS, (b"content-security-policy", next(pages, _NOTHING).encode())]
    if path.startswith(("/v1", "/metrics")):
        found.append((b"cache-control", b"no-store"))
    if scheme == "https":
        found.append((b"strict-transport-security", b"max-age=31536000"))
    return found


def without_port(address: str) -> str:
    """A name or an address without its port and brackets: `192.0.2.1:443`, `[2001:db8::1]:443`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def see_through(scope: Scope, proxies: int) -> None:
    """Takes the client's address and scheme from what the nearest `proxies` proxies have added.

    Each appends the address that it was asked from; anything before that was written by the client.
    """
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    addresses = [address.strip() for value in found for address in value.split(",")]
    if len(addresses) >= proxies:
        with suppress(ValueError):  # not an address
            address = ipaddress.ip_address(without_port(addresses[-proxies]))
            # A proxy that listens on :: writes ::ffff:192.0.2.1, and all of these would be of one network.
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            scope["client"] = (str(mapped or address), 0)
    for name, value in scope["headers"]:
        if name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scope["scheme"] = value.decode()


class AdmissionControl:
    """ASGI middleware: 400 for a host that is not trusted, 401 and 403 by the client's key, 429 when it exceeds its
    rate, and 503 when too many bytes are in flight; adds the security and RateLimit headers to every answer.

    A request counts as one position before its body is read, valid or not, with or without a key; its route takes the
    others once they are known. A lone request is always let through, and so are the probes.
    """

    def __init__(self, app: ASGIApp, keys: Keys | None, settings: Settings, metrics: Metrics, tally: Tally) -> None:
        self._app = app
        self._keys = keys
        self._proxies = settings.proxies
        self._hosts = [name.strip("[] ").lower() for name in settings.trusted_hosts.split(",")]
        self._rate = RateLimit(settings.client_rate, settings.client_burst, settings.client_in_flight, tally)
        self._in_flight = BytesInFlight(_MOST_BYTES, tally)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._proxies:
            see_through(scope, self._proxies)
        context, path = context_of(scope), scope["path"]
        security = security_headers(path, scope["scheme"])
        limited = False
        context.hold = partial(self._in_flight.take, context)

        async def counted() -> Message:
            message = await receive()
            if body := message.get("body"):
                context.hold(len(body))
            return message

        async def send_in_pieces(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                limits = self._rate.headers(context.client) if limited else []
                message["headers"] = [*given, *limits, *(pair for pair in security if pair[0] not in names)]
            body = message.get("body", b"")
            if len(body) <= _PIECE:
                await send(message)
                return
            self._in_flight.hold(context, len(body))
            for start in range(0, len(body), _PIECE):
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": body[start : start + _PIECE], "more_body": more})
                self._in_flight.hold(context, -len(body[start : start + _PIECE]))  # the connection has it

        try:
            self._check_host(scope)
            free = path in _FREE or path.startswith(_FREE_FILES)
            try:
                authenticate(scope, context, self._keys)
            except ProblemError:
                free = False  # nobody guesses keys for nothing
                raise
            finally:
                if self._rate and not free:
                    limited, context.charge = True, partial(self._rate.charge, context)
                    context.charge(1)
            if path == "/mcp":  # only its tool's request has positions in flight
                self._rate.release(context)
            if path not in POLLED:
                self._in_flight.make_room(context)
        except MovemaskError as error:
            await problems.response_to(error, self._metrics.problem)(scope, receive, send_in_pieces)
        else:
            await self._app(scope, counted, send_in_pieces)
        finally:
            self._in_flight.release(context)
            self._rate.release(context)

    def _check_host(self, scope: Scope) -> None:
        """Raises ProblemError for a host that is not trusted. Probes are asked by address."""
        if "*" in self._hosts or scope["path"] in ("/livez", "/readyz"):
            return
        named = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        host = without_port(named).lower()
        domains = tuple(name[1:] for name in self._hosts if name.startswith("*."))
        if not host or not (host in self._hosts or host.endswith(domains)):
            fault = f"Host: {problems.shown(host)!r} is not served here (MOVEMASK_TRUSTED_HOSTS)"
            raise ProblemError("untrusted-host", fault)


def authenticate(scope: Scope, context: RequestContext, known: Keys | None) -> None:
    """Sets the client of a request, by key or by address, and what its key may do; without keys all is open.

    Raises ProblemError: 401 without a valid key, 403 without a scope that its path needs. Other paths than those above
    need any valid key.
    """
    context.client = _address_of(scope)
    if known is None:
        return
    path: str = scope["path"]
    values = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    token = token.strip() if kind.lower() == "bearer" else ""
    key = known.find(token) if token else None
    context.scopes = frozenset() if key is None else key.scopes
    if key is not None:
        context.key, context.client = key.name, f"key {key.name}"
    if path == "/" or _under(path, OPEN):
        return
    if key is None:
        fault, challenge = "the service needs an API key; send one `Authorization: Bearer KEY`", _REALM
        if token:
            fault, challenge = "Authorization: this API key is not valid", f'{_REALM}, error="invalid_token"'
        raise ProblemError("unauthorized", fault, {"WWW-Authenticate": challenge})
    needed = next((scopes for prefix, scopes in SCOPES if _under(path, (prefix,))), None)
    if needed is not None and not needed & key.scopes:
        names = sorted(one.value for one in needed)
        fault = (
            f"{scope['method']} {problems.shown(path)} needs the scope {' or '.join(names)}, "
            f"and the key {key.name} does not have it"
        )
        challenge = f'{_REALM}, error="insufficient_scope", scope="{" ".join(names)}"'
        raise ProblemError("forbidden", fault, {"WWW-Authenticate": challenge})


def _address_of(scope: Scope) -> str:
    """The client's address; of IPv6 the network, all of which a client has."""
    return client_address(str(scope["client"][0])) if scope.get("client") else ""


def _under(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)
