"""What a client with one position would lose: its turn, beside clients with thousands; and what they would: theirs."""

from __future__ import annotations

import asyncio

from movemask.network.queue import SLICE, SMALL, FairQueue, Submission

LOOP = asyncio.new_event_loop()
LOOP.close()


def submitted(client: str, size: int) -> Submission:
    """What waits in a fair queue; nobody awaits it."""
    return Submission(range(size), client, int, asyncio.Future(loop=LOOP), 0.0)


def taken(fair: FairQueue, room: int = 64) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry, _, size in fair.take(room):
        found[entry.client] = found.get(entry.client, 0) + size
    return found


def test_a_lone_client_fills_whole_batches_in_order() -> None:
    fair = FairQueue()
    one = submitted("a", 100)
    fair.add(one)
    assert [(first, size) for _, first, size in fair.take(64)] == [(0, 64)]
    assert [(first, size) for _, first, size in fair.take(64)] == [(64, 36)]
    assert fair.items == 0
    assert fair.take(64) == []


def test_a_short_one_is_in_the_next_batch_however_much_waits() -> None:
    fair = FairQueue()
    for number in range(8):
        fair.add(submitted(f"large {number}", 1024))
    fair.take(64)
    fair.add(submitted("small", 1))
    assert fair.before(1) <= SLICE + 1
    assert fair.before(1000) > 8000
    found = taken(fair)
    assert found["small"] == 1
    assert sum(found.values()) <= 1 + SLICE


def test_large_ones_get_small_slices_while_short_ones_come_and_one_however_many() -> None:
    fair = FairQueue()
    fair.add(submitted("large", 1000))
    for number in range(200):
        fair.add(submitted(f"small {number}", 1))
    found = taken(fair)
    assert found.pop("large") == SLICE
    assert sum(found.values()) == 64 - SLICE


def test_clients_take_turns_whatever_they_send() -> None:
    for size in (SMALL, 1000):
        fair = FairQueue()
        for _ in range(100):
            fair.add(submitted("greedy", size))
        fair.add(submitted("modest", size))
        given = {"greedy": 0, "modest": 0}
        while given["modest"] < size:
            for client, count in taken(fair).items():
                given[client] += count
        assert given["greedy"] <= size + 64  # the rest of a batch


def test_what_is_taken_out_does_not_count() -> None:
    fair = FairQueue()
    large, small = submitted("a", 100), submitted("a", 2)
    fair.add(large)
    fair.add(small)
    fair.take(4)
    assert fair.remove(large)
    assert not fair.remove(large)
    assert not fair.remove(small)
    assert fair.items == 0
