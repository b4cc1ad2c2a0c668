"""`Sites`: the names by which the service is asked, and the pages of other sites that may ask."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.types import Scope

from movemask.errors import shown
from movemask.server.problems import ProblemError


class Sites:
    """Checks the `Host` of a request, and the site whose page sends it.

    Parameters
    ----------
    hosts : names, addresses and networks that the service answers to, in lower case and without brackets; `*.NAME` for
        subdomains, `*` for any
    origins : origins whose pages may call the service; `*` for any
    """

    def __init__(self, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._any = "*" in hosts
        self._networks = [ipaddress.ip_network(name) for name in hosts if "/" in name]
        self._names = frozenset(hosts)
        self._domains = tuple(name[1:] for name in hosts if name.startswith("*."))
        self._origins = frozenset(origins)

    def check_host(self, scope: Scope) -> None:
        """Raises ProblemError unless the service answers to the request's `Host`.

        This refuses a page whose site points its own name at the service's address (DNS rebinding).

        Starlette's TrustedHostMiddleware has neither exceptions nor a problem as its answer.
        """
        if self._any:
            return
        host = without_port(_header(scope, b"host")).lower().removesuffix(".")  # of a full name
        if not self._is_trusted(host):
            fault = (
                f"Host: the service does not answer to {shown(host)!r}; "
                "its operator can add the name to MOVEMASK_TRUSTED_HOSTS"
            )
            raise ProblemError("untrusted-host", fault)

    def check_site(self, scope: Scope) -> None:
        """Raises ProblemError for a GET that a page of another site sends, such as that of an
        image.

        The page cannot read the answer, but the network would run, and the ledger would record it.
        Links are followed.
        """
        if scope["method"] != "GET" or _header(scope, b"sec-fetch-site") != "cross-site":
            return
        if _header(scope, b"sec-fetch-mode") != "navigate":
            self._check_origin(_header(scope, b"origin"))

    def check_origin(self, scope: Scope) -> None:
        """Raises ProblemError if a page of an origin that may not call the service sends the
        request.

        This holds for every method. The Model Context Protocol asks for it.
        """
        origin = _header(scope, b"origin")
        if not origin:
            return
        try:
            host = urlsplit(origin).hostname or ""
        except ValueError:  # unbalanced brackets
            host = ""
        if not self._is_trusted(host):
            self._check_origin(origin)

    def _check_origin(self, origin: str) -> None:
        if not self._origins & {origin, "*"}:
            page = f"a page of {shown(origin)!r}" if origin else "a page of another site"
            fault = (
                f"Origin: {page} may not call the service; "
                "its operator can add the origin to MOVEMASK_CORS_ORIGINS"
            )
            raise ProblemError("cross-site", fault)

    def _is_trusted(self, host: str) -> bool:
        if self._any or (host and (host in self._names or host.endswith(self._domains))):
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def without_port(address: str) -> str:
    """Returns a name or an address without port and brackets: `192.0.2.1:443`, `[2001:db8::1]:443`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _header(scope: Scope, header: bytes) -> str:
    """Returns the first header of this name; empty if there is none."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == header), "")
