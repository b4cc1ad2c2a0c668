"""`cacheable`: responses that a client may keep, with an ETag."""

from __future__ import annotations

from hashlib import blake2b

from fastapi import Request, Response

from movemask.server.api.negotiation import is_current


def cacheable(http: Request, content: bytes, *, seconds: int = 0) -> Response:
    """Returns a JSON response that a client may reuse for `seconds`, and after that if the service
    still has the same content.

    If the request's If-None-Match has the content's ETag, the response is a 304 without content.
    Shared caches may not keep it: whether a client may have it depends on its key. The ETag is
    weak, because the response may be compressed.
    """
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {
        "ETag": f"W/{tag}",
        "Cache-Control": f"private, max-age={seconds}" if seconds else "private, no-cache",
    }
    if is_current(http.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type="application/json")
