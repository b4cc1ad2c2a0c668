"""`see_through`: the client's address and scheme behind trusted proxies."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

from starlette.types import Scope


def without_port(address: str) -> str:
    """A name or an address without port and brackets: `192.0.2.1:443`, `[2001:db8::1]:443`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def see_through(scope: Scope, proxies: int) -> None:
    """Sets the client's address and scheme from the headers of the nearest `proxies` proxies.

    Each proxy appends the address of its own client to X-Forwarded-For. Earlier entries are the client's own words.
    """
    found = [
        value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"
    ]
    addresses = [address.strip() for value in found for address in value.split(",")]
    if len(addresses) >= proxies:
        with suppress(ValueError):  # not an address
            scope["client"] = (str(ipaddress.ip_address(without_port(addresses[-proxies]))), 0)
    for name, value in scope["headers"]:
        if name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scope["scheme"] = value.decode()
