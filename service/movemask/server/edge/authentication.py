"""`identify`: who sends a request, by key or address. `authorize`: whether that client may call a route."""

from __future__ import annotations

from fastapi import Request
from starlette.types import Scope

from movemask.errors import shown
from movemask.server.edge.context import RequestContext, context_of
from movemask.server.edge.keys import Keys, KeyScope
from movemask.server.edge.shared_rates import client_address
from movemask.server.problems import ProblemError

_REALM = 'Bearer realm="movemask"'


def identify(scope: Scope, context: RequestContext, keys: Keys | None) -> None:
    """Sets the client of a request, and its key with its scopes. Without keys, everything is open."""
    context.client = client_address(str(scope["client"][0])) if scope.get("client") else ""
    if keys is None:
        return
    values = [
        value.decode("latin-1").strip()
        for name, value in scope["headers"]
        if name == b"authorization"
    ]
    kind, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    token = token.strip() if kind.lower() == "bearer" else ""
    key = keys.find(token) if token else None
    context.keyed, context.token = True, bool(token)
    context.scopes = frozenset() if key is None else key.scopes
    if key is not None:
        context.key, context.client = key.name, f"key {key.name}"


def authorize(http: Request, scopes: frozenset[KeyScope]) -> None:
    """Raises ProblemError unless the client may call a route of these scopes: 401 without a valid key, 403 if its key
    has none of them. A route without scopes needs no key."""
    context = context_of(http.scope)
    if not context.keyed or not scopes or context.scopes & scopes:
        return
    if context.key is None:
        if not context.charged:
            context.charge(1)  # nobody guesses keys for nothing
        fault = "the service needs an API key; send one `Authorization: Bearer KEY`"
        challenge = _REALM
        if context.token:
            fault = "Authorization: this API key is not valid"
            challenge = f'{_REALM}, error="invalid_token"'
        raise ProblemError("unauthorized", fault, {"WWW-Authenticate": challenge})
    names = sorted(scope.value for scope in scopes)
    fault = (
        f"{http.method} {shown(http.url.path)} needs the scope {' or '.join(names)}, "
        f"and the key {context.key} does not have it"
    )
    challenge = f'{_REALM}, error="insufficient_scope", scope="{" ".join(names)}"'
    raise ProblemError("forbidden", fault, {"WWW-Authenticate": challenge})
