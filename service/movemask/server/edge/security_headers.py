"""`security_headers`: what every answer tells browsers to refuse."""

from __future__ import annotations

from functools import lru_cache

#: Swagger UI and ReDoc, which have a script inside the page.
_INLINE = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: The page: its own files, and requests to the service.
_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NOTHING = "default-src 'none'; frame-ancestors 'none'"  # for answers that are no page

#: Content-Security-Policy by the path of the route.
POLICIES = {"/": _PAGE, "/docs": _INLINE, "/docs/oauth2-redirect": _INLINE, "/redoc": _INLINE}

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@lru_cache(maxsize=256)
def security_headers(route: str, scheme: str) -> list[tuple[bytes, bytes]]:
    """The security headers of an answer by the path of its route; the answer's own header of the same name wins."""
    found = [*_ALWAYS, (b"content-security-policy", POLICIES.get(route, _NOTHING).encode())]
    if route.startswith(("/v1", "/metrics")):
        found.append((b"cache-control", b"no-store"))
    if scheme == "https":
        found.append((b"strict-transport-security", b"max-age=31536000"))
    return found
