"""The security headers of every answer, and what a request's headers say: its host, and its client behind proxies."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from functools import lru_cache

from starlette.types import Scope

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


@lru_cache(maxsize=256)
def headers(path: str, scheme: str) -> list[tuple[bytes, bytes]]:
    """The security headers of an answer; an answer's own header of the same name wins."""
    pages = (policy for page, policy in POLICIES.items() if path == page or path.startswith(page + "/"))
    found = [*_ALWAYS, (b"content-security-policy", next(pages, _NOTHING).encode())]
    if path.startswith(("/v1", "/metrics")):
        found.append((b"cache-control", b"no-store"))
    if scheme == "https":
        found.append((b"strict-transport-security", b"max-age=31536000"))
    return found


def host_of(scope: Scope) -> str:
    """The name that the request is for, without the port."""
    return _without_port(next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), ""))


def _without_port(address: str) -> str:
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
            address = ipaddress.ip_address(_without_port(addresses[-proxies]))
            # A proxy that listens on :: writes ::ffff:192.0.2.1, and all of these would be of one network.
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            scope["client"] = (str(mapped or address), 0)
    for name, value in scope["headers"]:
        if name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scope["scheme"] = value.decode()
