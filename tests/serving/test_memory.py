"""What an operator would lose: memory that stays with the service when a crowd has left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from movemask.serving.memory import Returned


def test_memory_is_given_back_when_a_crowd_has_left_and_not_for_a_few() -> None:
    calls: list[int] = []
    returned = Returned(lambda: calls.append(seen))
    for seen in (0, 50, 10, 60, 220, 180, 130, 119, 110, 60, 30, 0, 0):
        returned.looked(seen)
    assert calls == [119, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own count of memory is Linux's")
def test_what_is_free_between_pieces_in_use_is_given_back() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    pieces = [bytes(60_000) for _ in range(3_000)]
    kept = pieces[::50]
    most = resident()
    del pieces
    returned = Returned()
    returned.looked(200)
    returned.looked(0)
    assert resident() < most - 100_000_000
    assert len(kept) == 60
