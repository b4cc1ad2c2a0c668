"""What an operator would lose: figures of all answers, even after an error and at a stop."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from movemask.server.queue.follow_up import FollowUp


def test_all_batches_are_followed_up_many_at_once_and_the_rest_at_the_end() -> None:
    followed: list[Sequence[int]] = []
    after = FollowUp("net", followed.append)
    for number in range(100):
        after.put(number)
    after.close()
    assert [number for batches in followed for number in batches] == list(range(100))
    assert len(followed) < 100


def test_an_error_costs_neither_later_batches_nor_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    followed: list[int] = []
    failed = threading.Event()

    def follow_up(batches: Sequence[int]) -> None:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        followed.extend(batches)

    after = FollowUp("net", follow_up)
    after.put(1)
    assert failed.wait(30)
    after.put(2)
    after.close()
    assert followed == [2]
    assert "work after the answers of model net failed" in caplog.text
