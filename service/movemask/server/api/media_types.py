"""`preferred`: the media type of an answer, by the request's Accept header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: An answer that is no JSON, in OpenAPI. Without a schema, clients' generators would know no type for any answer.
TEXT: dict[str, Any] = {"schema": {"type": "string"}}


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered media type with the highest quality in an Accept header (RFC 9110, section 12.5.1).

    The quality of a type is that of the range that names it most exactly. Of types with equal quality, one that is
    named exactly is preferred, then the one that the header has first. A header that accepts none gets the first type
    offered.
    """
    ranges: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(accept.lower().split(",")):
        media_range, *parameters = (word.strip() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            ranges.setdefault(media_range, (float(quality), -place))
        except ValueError:
            ranges.setdefault(media_range, (0.0, -place))

    def rank(media_type: str) -> tuple[float, int, int]:
        for exactness, media_range in (
            (2, media_type),
            (1, media_type.partition("/")[0] + "/*"),
            (0, "*/*"),
        ):
            if media_range in ranges:
                quality, order = ranges[media_range]
                return quality, exactness, order
        return 0.0, 0, 0

    best = max(offered, key=rank)
    return best if rank(best)[0] > 0 else offered[0]
