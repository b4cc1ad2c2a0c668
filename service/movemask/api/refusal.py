"""`refuse`: answers a request whose body has not been read."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Largest body, in bytes, that is read before the answer.
_DRAINED = 65_536


async def refuse(answer: Response, scope: Scope, receive: Receive, send: Send, drained: int = _DRAINED) -> None:
    """Sends `answer`, after a body of at most `drained` bytes.

    What comes of a larger body is thrown away by `Connection`: a client that is still sending does not read, and would
    lose the answer if the connection were closed. A client that waits for 100 Continue sends nothing more.
    """
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    if headers.get(b"expect", b"").lower() == b"100-continue":
        answer.headers["Connection"] = "close"
    elif (length.isdigit() and int(length) <= drained) or not (length or b"transfer-encoding" in headers):
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            continue
    await answer(scope, receive, send)
