"""Times as people write them."""

from datetime import UTC, datetime

import pytest

from movemask.errors import InvalidParameter
from movemask.times import time_of

NOW = 2e9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((date, datetime(2099, 12, 31, tzinfo=UTC).timestamp()) for date in ("2099-12-31", "20991231", " 20991231 ")),
        *(
            (date, datetime(2026, 1, 1, 12, 30, tzinfo=UTC).timestamp())
            for date in ("20260101T123000", "20260101T1230Z")
        ),
        ("20260101T133000 0100", datetime(2026, 1, 1, 12, 30, tzinfo=UTC).timestamp()),
        ("1577836800", 1577836800),
        ("1577836800.25", 1577836800.25),
        ("@0", 0),
        ("@20991231", 20991231),
        ("@1.5", 1.5),
        ("7d", NOW - 7 * 86_400),
    ],
)
def test_time_is_read(text: str, seconds: float) -> None:
    assert time_of("--before", text, NOW) == seconds


@pytest.mark.parametrize(
    "text",
    ["0", "2026", "202601", "20261301", "2099123", "209912311", "1577836800000", "20260101123000", "@", "@x", "@-1"],
)
def test_digits_of_other_length_raise(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"--before: '.*' is not a time; write an ISO 8601 time"):
        time_of("--before", text, NOW)
