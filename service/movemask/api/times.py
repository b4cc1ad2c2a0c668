"""Times of the audit, which keeps seconds since 1970, as text."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    """The RFC 3339 form of a time in seconds since 1970, in UTC and milliseconds: `2026-11-22T08:07:30.125Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
