"""`preferred`: the media type of an answer, by the request's Accept header."""

from __future__ import annotations

from collections.abc import Sequence


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered media type with the highest quality in an Accept header (RFC 9110, section 12.5.1).

    Of types with equal quality, the header's order decides. A wildcard, or a header with no offered type, stands for
    the first type offered.
    """
    named: dict[str, float] = {}
    for part in accept.lower().split(","):
        media_type, *parameters = (word.strip() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            named.setdefault(media_type, float(quality))
        except ValueError:
            named.setdefault(media_type, 0.0)
    found = [media_type for media_type in named if media_type in offered and named[media_type] > 0]
    return max(found, key=lambda media_type: named[media_type], default=offered[0])
