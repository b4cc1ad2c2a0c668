"""Query parameters: those that several routes share, and the refusal of unknown ones."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated

from fastapi import Depends, Query, Request, params
from fastapi.dependencies.utils import get_flat_params

from movemask.api.problems import shown
from movemask.errors import InvalidParameter
from movemask.store.reader import Span

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FORMS = "seconds since 1970, an ISO 8601 time (UTC if it names no zone), or how long ago: 90s, 10m, 24h, 7d, 2w"

TimeText = Annotated[str | None, Query(max_length=40, description=f"A time: {_FORMS}.")]


async def span(since: TimeText = None, until: TimeText = None) -> Span:
    """The requested span of time; raises InvalidParameter."""
    now = time.time()
    requested = Span(time_of("since", since, now), time_of("until", until, now))
    if requested.since is not None and requested.until is not None and requested.since >= requested.until:
        raise InvalidParameter(f"since: {since!r} is not before until, {until!r}")
    return requested


SpanParameters = Annotated[Span, Depends(span)]


async def known_parameters(request: Request) -> None:
    """Refuses query parameters that the route does not take, as a POST route takes none, or that are repeated; raises
    InvalidParameter."""
    if not request.query_params or request.url.path == "/":  # a link to the page may have been decorated on its way
        return
    fields = get_flat_params(request.scope["route"].dependant)
    known = [field.alias for field in fields if isinstance(field.field_info, params.Query)]
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            near = get_close_matches(name[:40].lower(), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none'}"
            raise InvalidParameter(f"{shown(name)}: {request.url.path} has no such query parameter; {hint}")
        if names.count(name) > 1:
            raise InvalidParameter(f"{name}: is given {names.count(name)} times, and can be given once")


def time_of(name: str, given: str | None, now: float) -> float | None:
    """The time that a text says, in seconds since 1970; raises InvalidParameter that names the parameter."""
    if given is None:
        return None
    text = given.strip()
    if re.fullmatch(r"\d{1,12}(\.\d+)?", text):
        return float(text)
    if match := re.fullmatch(r"(\d{1,9})([smhdw])", text):
        return now - int(match[1]) * _SECONDS[match[2]]
    try:
        # A plus sign in a URL's query is a space.
        moment = datetime.fromisoformat(re.sub(r" (?=\d\d:?\d\d$)", "+", text) if "T" in text else text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidParameter(f"{name}: {given!r} is not a time; write {_FORMS}") from None
