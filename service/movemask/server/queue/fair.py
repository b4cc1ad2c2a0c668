"""`FairOrder`: which waiting items go into the next batch. It reads no clock, and its caller holds the lock.

Items have a cost, 1 or more, and a batch has room for a limited cost. Small submissions go first. Large submissions get
`SLICE` of a batch. If the batch has room for less than 4, they get it of every second, or every fourth with room for 1.
They get more only if no small submission came just now: a client that asks again and again never waits for a whole
batch of somebody else's items. Among small and among large submissions, clients take turns of equal cost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from math import inf
from typing import Generic, NamedTuple, TypeVar

#: Largest cost of a small submission, and of a client's turn while other clients wait.
SHARE = 8

#: Largest cost of all large submissions in a batch while small ones wait or are expected.
#: One position beside eight clients with 1,024 each (`benchmarks.hostile`) took 40 ms with 1, and 85 ms with 4.
SLICE = 1

#: Part of a batch's room that large submissions gather until they have `SLICE`. With room for 4, one batch is enough.
_LARGE_PART = 1 / 4

#: Seconds after a small submission during which another is expected. Shorter, and a client that asks again and again
#: waits for whole batches of others; longer, and one that asks now and then halves their rate.
_SMALL_EXPECTED = 0.1

S = TypeVar("S")


class Item(NamedTuple, Generic[S]):
    """An item of a submission: its place there, and its cost."""

    submission: S
    place: int
    cost: float


class Turns(Generic[S]):
    """Waiting items by client. Clients take turns of equal cost; each client's items keep their order."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[Item[S]]] = OrderedDict()
        self.waiting, self.cost = 0, 0.0  # number of items, and their cost

    def __len__(self) -> int:
        """Returns the number of clients."""
        return len(self._clients)

    def waiting_of(self, client: str) -> int:
        """Returns the number of a client's items."""
        return len(self._clients.get(client, ()))

    def add(self, client: str, items: Sequence[Item[S]]) -> None:
        self._clients.setdefault(client, deque()).extend(items)
        self._count(items, 1)

    def take(self, room: float) -> list[Item[S]]:
        """Takes items until less than 1 of `room` is left: the last item may cost more than was left."""
        batch: list[Item[S]] = []
        while room >= 1 and self._clients:
            client, items = next(iter(self._clients.items()))
            turn = room if len(self._clients) == 1 else min(room, SHARE)
            while items and turn >= 1:
                item = items.popleft()
                batch.append(item)
                turn, room = turn - item.cost, room - item.cost
            self._clients.move_to_end(client)
            if not items:
                del self._clients[client]
        self._count(batch, -1)
        return batch

    def remove(self, client: str, submission: S) -> None:
        """Removes the items of a submission."""
        items = self._clients.get(client, deque())
        self._count([item for item in items if item.submission is submission], -1)
        remaining = [item for item in items if item.submission is not submission]
        items.clear()
        items.extend(remaining)
        if not remaining:
            self._clients.pop(client, None)

    def _count(self, items: Sequence[Item[S]], sign: int) -> None:
        self.waiting += sign * len(items)
        self.cost += sign * sum(item.cost for item in items)


class FairOrder(Generic[S]):
    """The waiting items, of `small` and of `large` submissions. Times are of any clock that never goes back."""

    def __init__(self) -> None:
        self.small, self.large = Turns[S](), Turns[S]()
        self._small_came = -inf
        self._due = 0.0  # cost that large submissions have gathered since they were last in a batch

    @property
    def waiting(self) -> int:
        """Number of items."""
        return self.small.waiting + self.large.waiting

    @property
    def cost(self) -> float:
        return self.small.cost + self.large.cost

    def expects_small(self, now: float) -> bool:
        """Returns whether a small submission waits, or came just now."""
        return bool(self.small.waiting) or now - self._small_came < _SMALL_EXPECTED

    def line(self, cost: float) -> Turns[S]:
        """Returns where a submission of this total cost waits."""
        return self.small if cost <= SHARE else self.large

    def add(self, client: str, items: Sequence[Item[S]], now: float) -> None:
        """Adds the items of a submission."""
        line = self.line(sum(item.cost for item in items))
        line.add(client, items)
        if line is self.small:
            self._small_came = now

    def take(self, room: float, now: float) -> list[Item[S]]:
        """Takes the items of the next batch, which has room for this cost."""
        if self.large.waiting:
            self._due = min(SLICE, self._due + room * _LARGE_PART)
        reserved = int(self._due)
        small_items = self.small.take(room - reserved)
        # The last small item may cost more than was left, but not at the expense of the large submissions.
        room = max(reserved, room - sum(item.cost for item in small_items))
        if small_items or self.expects_small(now):
            room = min(room, SLICE)
        elif len(self.large) > 1:
            room = min(room, SHARE)
        large_items = self.large.take(room)
        if large_items or not self.large.waiting:
            self._due = 0.0
        return small_items + large_items

    def remove(self, client: str, submission: S) -> None:
        """Removes the remaining items of a submission that failed or whose caller has gone."""
        self.small.remove(client, submission)
        self.large.remove(client, submission)
