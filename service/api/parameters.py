"""Query parameters that more than one route takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query

from service.audit.figures import Span
from service.errors import InvalidParameter

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FORMS = "seconds since 1970, an ISO 8601 time (UTC if it names no zone), or how long ago: 90s, 10m, 24h, 7d, 2w"

TimeText = Annotated[str | None, Query(max_length=40, description=f"A time: {_FORMS}.", examples=["24h"])]


async def span(since: TimeText = None, until: TimeText = None) -> Span:
    """The span of time that is asked about; raises InvalidParameter."""
    now = time.time()
    found = Span(_time("since", since, now), _time("until", until, now))
    if found.since is not None and found.until is not None and found.since >= found.until:
        raise InvalidParameter(f"since: {since!r} is not before until, {until!r}")
    return found


AskedSpan = Annotated[Span, Depends(span)]


def _time(name: str, text: str | None, now: float) -> float | None:
    if text is None:
        return None
    for read in (_number, _ago(now), _iso):
        found = read(text.strip())
        if found is not None:
            return found
    raise InvalidParameter(f"{name}: {text!r} is not a time; write {_FORMS}")


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d+)?", text) else None


def _ago(now: float) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        found = re.fullmatch(r"(\d{1,9})([smhdw])", text)
        return now - int(found[1]) * _SECONDS[found[2]] if found else None

    return read


def _iso(text: str) -> float | None:
    try:
        # A plus sign in a URL's query is a space.
        found = datetime.fromisoformat(re.sub(r" (?=\d\d:?\d\d$)", "+", text) if "T" in text else text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
