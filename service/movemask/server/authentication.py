"""`authenticate`: who sends a request, by key or address, and whether the key allows its path."""

from __future__ import annotations

from starlette.types import Scope

from movemask.server.context import RequestContext
from movemask.server.keys import Keys, KeyScope
from movemask.server.problems import ProblemError, shown
from movemask.server.rates import client_address

#: Scopes by the beginning of the path; the first match counts, and any one of its scopes suffices. A test compares
#: this and OPEN with the routes.
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


def authenticate(scope: Scope, context: RequestContext, keys: Keys | None) -> None:
    """Sets the client of a request and its key's scopes. Without keys, everything is open.

    Raises ProblemError: 401 without a valid key, 403 if the key lacks the scope of the path. A path of no scope needs
    any valid key.
    """
    context.client = client_address(str(scope["client"][0])) if scope.get("client") else ""
    if keys is None:
        return
    path: str = scope["path"]
    values = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    token = token.strip() if kind.lower() == "bearer" else ""
    key = keys.find(token) if token else None
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
        names = sorted(scope_.value for scope_ in needed)
        fault = (
            f"{scope['method']} {shown(path)} needs the scope {' or '.join(names)}, "
            f"and the key {key.name} does not have it"
        )
        challenge = f'{_REALM}, error="insufficient_scope", scope="{" ".join(names)}"'
        raise ProblemError("forbidden", fault, {"WWW-Authenticate": challenge})


def _under(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)
