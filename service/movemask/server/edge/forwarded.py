"""`see_through`: the client's address and scheme behind trusted proxies."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

from starlette.types import Scope

from movemask.server.edge.sites import without_port


def see_through(scope: Scope, proxies: int) -> None:
    """Sets the client's address and scheme from the headers of the nearest `proxies` proxies.

    Each proxy appends the address of its own client to X-Forwarded-For. Earlier entries are the client's own words.
    """
    values = [
        value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"
    ]
    addresses = [address.strip() for value in values for address in value.split(",")]
    if len(addresses) >= proxies:
        with suppress(ValueError):  # not an address
            scope["client"] = (str(ipaddress.ip_address(without_port(addresses[-proxies]))), 0)
    for name, value in scope["headers"]:
        if name == b"x-forwarded-proto" and value in (b"http", b"https"):
            scope["scheme"] = value.decode()
