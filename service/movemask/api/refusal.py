"""`refuse`: answers a request whose body has not been read."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Largest body, in bytes, that is read and thrown away to keep the connection. A client that is still sending does not
#: read the answer, and loses it if the connection is closed first.
_DRAINED = 65_536


async def refuse(answer: Response, scope: Scope, receive: Receive, send: Send, drained: int = _DRAINED) -> None:
    """Sends `answer` after reading a body of at most `drained` bytes; else closes the connection after it."""
    headers = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
    length = headers.get(b"content-length", b"")
    if (length.isdigit() and int(length) <= drained) or not headers:
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            continue
    else:
        answer.headers["Connection"] = "close"
    await answer(scope, receive, send)
