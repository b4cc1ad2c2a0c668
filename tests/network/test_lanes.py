"""What a client with one position would lose: its turn, beside clients with thousands; and what they would: theirs."""

from __future__ import annotations

from dataclasses import dataclass

from movemask.network.lanes import SHORT, SLICE, Lanes


@dataclass(eq=False)
class Asked:
    client: str
    items: range
    taken: int = 0


def asked(client: str, size: int) -> Asked:
    return Asked(client, range(size))


def taken(lanes: Lanes[Asked], room: int = 64) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry, _, size in lanes.take(room):
        found[entry.client] = found.get(entry.client, 0) + size
    return found


def test_a_lone_client_fills_whole_batches_in_order() -> None:
    lanes: Lanes[Asked] = Lanes()
    one = asked("a", 100)
    lanes.add(one)
    assert [(first, size) for _, first, size in lanes.take(64)] == [(0, 64)]
    assert [(first, size) for _, first, size in lanes.take(64)] == [(64, 36)]
    assert lanes.items == 0
    assert lanes.take(64) == []


def test_a_short_one_is_in_the_next_batch_however_much_waits() -> None:
    lanes: Lanes[Asked] = Lanes()
    for number in range(8):
        lanes.add(asked(f"large {number}", 1024))
    lanes.take(64)
    lanes.add(asked("small", 1))
    assert lanes.before(1) <= SLICE + 1
    assert lanes.before(1000) > 8000
    found = taken(lanes)
    assert found["small"] == 1
    assert sum(found.values()) <= 1 + SLICE


def test_large_ones_get_small_slices_while_short_ones_come_and_a_quarter_however_many() -> None:
    lanes: Lanes[Asked] = Lanes()
    lanes.add(asked("large", 1000))
    for number in range(200):
        lanes.add(asked(f"small {number}", 1))
    found = taken(lanes)
    assert found.pop("large") == min(SLICE, 16)
    assert sum(found.values()) == 48


def test_clients_take_turns_whatever_they_send() -> None:
    for size in (SHORT, 1000):
        lanes: Lanes[Asked] = Lanes()
        for _ in range(100):
            lanes.add(asked("greedy", size))
        lanes.add(asked("modest", size))
        given = {"greedy": 0, "modest": 0}
        while given["modest"] < size:
            for client, count in taken(lanes).items():
                given[client] += count
        assert given["greedy"] <= size + 64  # the rest of a batch


def test_what_is_taken_out_does_not_count() -> None:
    lanes: Lanes[Asked] = Lanes()
    large, small = asked("a", 100), asked("a", 2)
    lanes.add(large)
    lanes.add(small)
    lanes.take(4)
    assert lanes.remove(large)
    assert not lanes.remove(large)
    assert not lanes.remove(small)
    assert lanes.items == 0
