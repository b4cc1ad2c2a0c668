"""What a user would lose: waits that are known beforehand, and a network that hangs and is seen to."""

from __future__ import annotations

import math

import pytest

from movemask.server.pace import Pace


def test_before_the_first_batch_nothing_is_refused_for_its_time_or_answered_on_the_event_loop() -> None:
    pace = Pace()
    assert pace.seconds(1000) == 0
    assert pace.seconds_alone(1) == math.inf


def test_the_first_batch_is_believed_and_later_ones_by_their_size() -> None:
    pace = Pace()
    pace.observe(64, 0.064, share=1.0, alone=False)
    assert pace.seconds(1000) == pytest.approx(1.0)
    pace.observe(64, 0.128, share=1.0, alone=False)
    assert pace.seconds(1000) == pytest.approx(1.5), "a full batch counts for half"
    pace.observe(1, 0.1, share=1 / 64, alone=True)
    assert pace.seconds(1000) == pytest.approx(1.5 + (100 - 1.5) / 64), "its item took longer because it was alone"
    assert pace.seconds_alone(1) == pytest.approx(0.1)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0001, 8), (0.002, 3), (1.0, 1)])
def test_a_slow_network_takes_smaller_slices(seconds: float, expected: float) -> None:
    pace = Pace()
    pace.observe(1, seconds, share=1.0, alone=False)
    assert pace.slice == pytest.approx(expected)


def test_a_batch_hangs_after_four_seconds_unless_its_network_is_that_slow() -> None:
    pace = Pace()
    assert not pace.hangs(8, 3.9)
    assert pace.hangs(8, 4.1)
    pace.observe(8, 8.0, share=1.0, alone=False)
    assert not pace.hangs(8, 79)
    assert pace.hangs(8, 81)
