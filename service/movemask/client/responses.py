"""Reads the bodies of responses: JSON, lines of JSON, texts, and problems.

The client trusts the service at its address. What it checks is what a proxy's answer or a broken connection may lack.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from movemask.client.connection import Response
from movemask.errors import ApiError, InvalidResponse
from movemask.schemas.answers import ErrorOut, Problem

T = TypeVar("T")

#: Most bytes of a body. A sweep of 1,024 ratings has 6 MB. Read into Python, JSON takes up to 26 times its bytes.
MOST = 8 * 2**20

#: Characters of an answer that an error quotes.
_QUOTED = 60

_REDIRECTS = range(300, 400)


async def content_of(response: Response, accept: str, most: int = MOST) -> bytes:
    """Returns the body of a response.

    Raises InvalidResponse for another media type than `accept`, and ServiceUnreachable.
    """
    _check_head(response, accept)
    return await _body(response, most)


class Lines:
    """The lines of a streamed body. Lines end at line feeds alone: JSON may hold Unicode's other line ends."""

    def __init__(self, response: Response, accept: str) -> None:
        _check_head(response, accept)
        self._response = response
        self._pieces = response.pieces
        self._read = bytearray()
        self._ended = False

    async def next(self) -> bytes | None:
        """Returns the next line.

        None after the last. Raises InvalidResponse, ServiceUnreachable.
        """
        searched = 0
        while (end := self._read.find(b"\n", searched)) < 0:
            if len(self._read) > MOST:
                raise InvalidResponse(f"{self._response.where}: a line of more than {MOST:,} bytes")
            searched = len(self._read)
            piece = None if self._ended else await anext(self._pieces, None)
            if piece is None:
                self._ended = True
                if not self._read:
                    return None
                piece = b"\n"  # the last line may come without a line feed
            self._read += piece
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line


def read_json(content: bytes, shape: TypeAdapter[T], where: str) -> T:
    """Returns the answer in a body; raises InvalidResponse unless it is JSON of this shape."""
    try:
        return shape.validate_python(from_json(content, allow_inf_nan=False))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InvalidResponse(f"{where}: the answer is not movemask's: {fault}") from None
    except ValueError as error:
        start = content[:_QUOTED].decode("utf-8", "replace")
        raise InvalidResponse(f"{where}: the answer is not JSON: {error}: {start!r}") from None


async def text_of(response: Response, accept: str, most: int = MOST) -> str:
    """Returns a body as text; raises InvalidResponse, ServiceUnreachable.

    A text has no end of its own, as JSON has. So a response without a length is refused, because
    its end may be lost.
    """
    if not {"content-length", "transfer-encoding"} & set(response.headers):
        raise InvalidResponse(
            f"{response.where}: an answer without its length, whose end may be missing"
        )
    content = await content_of(response, accept, most)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidResponse(
            f"{response.where}: the answer is not UTF-8: {error.reason} at {error.start}"
        ) from None


async def error_of(response: Response) -> ApiError:
    """Returns the problem in a response.

    Without a problem document, as in a proxy's page, it is an error with the status.
    """
    status = response.status
    content = await _body(response, MOST)
    twice = status == HTTPStatus.NOT_FOUND and "/v1/v1/" in response.where
    hint = "; the client adds /v1 itself: give the address without it" if twice else ""
    try:
        problem = _PROBLEM.validate_python(from_json(content, allow_inf_nan=False))
    except ValueError:
        where = response.headers.get("location", "")
        if status in _REDIRECTS and where:
            detail = f"{response.where}: redirects to {where}; give the service's own address"
        else:
            detail = (
                f"{response.where}: the service answered {status} without a problem document{hint}"
            )
        return ApiError(status, "about:blank", f"HTTP {status}", detail)
    return error_of_problem(problem.model_copy(update={"detail": problem.detail + hint}), status)


def error_of_problem(problem: Problem, status: int | None = None) -> ApiError:
    """Returns the exception for a problem.

    `status` is the status of the response, if the problem is a whole response.
    """
    extra = problem.model_extra or {}
    status = problem.status if status is None else status
    return ApiError(status, problem.type, problem.title, problem.detail, problem.request_id, extra)


def seconds_to_wait(response: Response) -> float | None:
    """Returns the seconds until the request may be sent again.

    None unless the response is a 429 or 503 with a Retry-After in digits.
    """
    delay = response.headers.get("retry-after", "")
    again = response.status in (429, 503) and re.fullmatch(r"[0-9]+", delay)
    return float(delay) if again else None


def seconds_to_retry(result: object) -> float | None:
    """Returns the seconds until an item of a batch may be sent again.

    None unless the service was too busy for it.
    """
    if not isinstance(result, ErrorOut) or result.error.status != HTTPStatus.SERVICE_UNAVAILABLE:
        return None
    delay = (result.error.model_extra or {}).get("retry_after")
    return None if delay is None else float(delay)


_PROBLEM: TypeAdapter[Problem] = TypeAdapter(Problem)


def _check_head(response: Response, accept: str) -> None:
    """Raises InvalidResponse for another media type than `accept`, such as that of a proxy's page."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != accept:
        named = media_type or "an answer of no type"
        raise InvalidResponse(
            f"{response.where}: {named} in place of {accept}; does movemask serve this address?"
        )


async def _body(response: Response, most: int) -> bytes:
    """Returns the whole body.

    Raises InvalidResponse for more than `most` bytes, and ServiceUnreachable.
    """
    content = bytearray()
    async for piece in response.pieces:
        content += piece
        if len(content) > most:
            raise InvalidResponse(f"{response.where}: an answer of more than {most:,} bytes")
    return bytes(content)
