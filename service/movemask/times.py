"""Times: read as people write them, written as RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from movemask.errors import InvalidParameter

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

#: The ways to write a time, for messages.
FORMS = "an ISO 8601 time (UTC if it names no zone), @ and seconds since 1970, or how long ago: 90s, 10m, 24h, 7d, 2w"


def time_of(name: str, value: str | None, now: float) -> float | None:
    """Returns a time in seconds since 1970 from one of FORMS; None for None. An age is counted back from `now`.

    Ten to twelve digits are seconds without the @ too, and eight are a date: 20260131.

    Raises InvalidParameter, which names the parameter `name`.
    """
    if value is None:
        return None
    text = value.strip()
    if match := re.fullmatch(r"(?:@(?=\d{1,12}\b)|(?=\d{10,12}\b))(\d+(?:\.\d+)?)", text):
        return float(match[1])
    if match := re.fullmatch(r"(\d{1,9})([smhdw])", text):
        return now - int(match[1]) * _SECONDS[match[2]]
    try:
        if text.isdecimal() and len(text) != len("20260131"):
            raise ValueError  # `fromisoformat` would take a digit for what separates date and time
        # In a URL's query, the plus sign of a time zone arrives as a space.
        moment = datetime.fromisoformat(
            re.sub(r" (?=\d\d:?\d\d$)", "+", text) if "T" in text else text
        )
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidParameter(f"{name}: {value!r} is not a time; write {FORMS}") from None


def rfc3339(seconds: float) -> str:
    """Returns a time in seconds since 1970 as RFC 3339, in UTC with milliseconds: `2026-11-22T08:07:30.125Z`."""
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .removesuffix("+00:00")
        + "Z"
    )
