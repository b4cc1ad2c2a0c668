"""Who a request is from and what it may do: the scopes of the routes, and `authenticate`."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

from movemask.api import keys, problems
from movemask.api.keys import Keys
from movemask.api.problems import ProblemError
from movemask.api.telemetry import RequestContext

#: What a request needs one of, by the beginning of its path; the first that fits counts. A test compares this and OPEN
#: with the routes.
SCOPES: tuple[tuple[str, frozenset[keys.Scope]], ...] = (
    ("/v1/leakage/positions", frozenset({keys.Scope.POSITIONS})),
    ("/v1/leakage/worst", frozenset({keys.Scope.POSITIONS})),
    ("/v1/leakage", frozenset({keys.Scope.AUDIT})),
    ("/v1/version", frozenset(keys.Scope)),
    ("/v1/models", frozenset({keys.Scope.POLICY, keys.Scope.AUDIT})),
    ("/v1", frozenset({keys.Scope.POLICY})),
    ("/metrics", frozenset({keys.Scope.METRICS})),
)

#: Paths that need no key: probes, and documentation and a page that are the same everywhere.
OPEN = ("/page", "/livez", "/readyz", "/docs", "/redoc", "/openapi.json", "/static-offline-docs")

_REALM = 'Bearer realm="movemask"'


def authenticate(scope: Scope, context: RequestContext, known: Keys | None) -> None:
    """Sets the client of a request, by key or by address, and what its key may do; without keys all is open.

    Raises ProblemError: 401 without a valid key, 403 without a scope that its path needs. Other paths than those above
    need any valid key.
    """
    if known is None:
        context.client = _address_of(scope)
        return
    path: str = scope["path"]
    token, fault = _token(scope)
    key = None if token is None else known.find(token)
    context.scopes = frozenset() if key is None else key.scopes
    if key is None:
        context.client = _address_of(scope)
    else:
        context.key, context.client = key.name, f"key {key.name}"
    if path == "/" or _under(path, OPEN):
        return
    if key is None:
        if token is not None:
            fault = "Authorization: this API key is not valid"
        challenge = _REALM if token is None else f'{_REALM}, error="invalid_token"'
        raise ProblemError(problems.problem(problems.UNAUTHORIZED, fault), {"WWW-Authenticate": challenge})
    needed = next((scopes for prefix, scopes in SCOPES if _under(path, (prefix,))), None)
    if needed is not None and not needed & key.scopes:
        names = sorted(one.value for one in needed)
        fault = (
            f"{scope['method']} {problems.shown(path)} needs the scope {' or '.join(names)}, "
            f"and the key {key.name} does not have it"
        )
        challenge = f'{_REALM}, error="insufficient_scope", scope="{" ".join(names)}"'
        raise ProblemError(problems.problem(problems.FORBIDDEN, fault), {"WWW-Authenticate": challenge})


def _address_of(scope: Scope) -> str:
    """The client's address; of IPv6 the network, all of which a client has."""
    address = str(scope["client"][0]) if scope.get("client") else ""
    if ":" in address:
        try:
            return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
        except ValueError:
            return address
    return address


def _under(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def _token(scope: Scope) -> tuple[str | None, str]:
    """The Bearer token of a request; None and what is wrong if there is none."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        return None, "the service needs an API key; send `Authorization: Bearer KEY`"
    kind, _, token = values[0].decode("latin-1").strip().partition(" ")
    if len(values) > 1:
        return None, "Authorization: is given more than once"
    if kind.lower() != "bearer" or not token.strip():
        return None, "Authorization: is not `Bearer KEY`"
    return token.strip(), ""
