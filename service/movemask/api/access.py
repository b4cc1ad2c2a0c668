"""`Access`: middleware that lets a request through if its API key has a scope of its route."""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.api import keys, problems
from movemask.api.keys import Key, Keys
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.api.request_context import request_context

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

_KEY = "movemask.key"
_REALM = 'Bearer realm="movemask"'


class Access:
    """Answers 401 without a valid key and 403 without the scope, before the body is read. Other paths than those above
    need any valid key. Lets everything through if `keys` is None."""

    def __init__(self, app: ASGIApp, keys: Keys | None, metrics: Metrics) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._keys is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        token, fault = _token(scope)
        key = None if token is None else self._keys.find(token)
        if key is None and token is not None:
            fault = "Authorization: this API key is not valid"
        scope[_KEY] = key
        if key is not None:
            context = request_context.get()
            if context is not None:
                context.key = key.name
        if path != "/" and not _under(path, OPEN):
            needed = next((scopes for prefix, scopes in SCOPES if _under(path, (prefix,))), None)
            if key is None:
                wanted = problems.problem(problems.UNAUTHORIZED, fault)
                challenge = _REALM if token is None else f'{_REALM}, error="invalid_token"'
            elif needed is not None and not needed & key.scopes:
                names = sorted(one.value for one in needed)
                wanted = problems.problem(
                    problems.FORBIDDEN,
                    f"{scope['method']} {problems.shown(path)} needs the scope {' or '.join(names)}, "
                    f"and the key {key.name} does not have it",
                )
                challenge = f'{_REALM}, error="insufficient_scope", scope="{" ".join(names)}"'
            else:
                wanted = None
            if wanted is not None:
                self._metrics.problem(wanted)
                answer = problems.response(wanted)
                answer.headers["WWW-Authenticate"] = challenge
                await refuse(answer, scope, receive, send)
                return
        await self._app(scope, receive, send)


def key_of(scope: Scope) -> Key | None:
    """The key of a request; None without one."""
    key: Key | None = scope.get(_KEY)
    return key


def client_of(scope: Scope) -> str:
    """Whose request it is: the name of its key, or its address; of IPv6 the network, all of which a client has."""
    key = key_of(scope)
    if key is not None:
        return f"key {key.name}"
    address = scope["client"][0] if scope.get("client") else ""
    if ":" in address:
        try:
            return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
        except ValueError:
            return str(address)
    return str(address)


def may(scope: Scope, wanted: keys.Scope) -> bool:
    """Whether a request may do something: its key has the scope, or no keys are set."""
    if _KEY not in scope:
        return True
    key = key_of(scope)
    return key is not None and wanted in key.scopes


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
