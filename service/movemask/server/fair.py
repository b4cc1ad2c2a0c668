"""`FairOrder`: which waiting items go into the next batch. It reads no clock, and its caller holds the lock.

An item has a cost, 1 or more, and a batch has room for a limited cost. Small submissions go first. Large submissions
always get a quarter of a batch, at most a slice (`Pace.slice`, a cost of 1 to 8). They get more than a slice only if no
other client waits and no small submission came in the last second: nobody waits for a whole batch of somebody else's
items. Clients take turns of equal cost, among the small submissions and among the large ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, TypeVar

#: Largest cost of a small submission.
SMALL = 8

#: Largest cost that one client gets per turn while other clients wait.
TURN = 8

#: Large submissions get 1/4 of a batch, at most a slice, even while many small submissions wait.
_LARGE_SHARE = 4

#: Seconds after a small submission during which another is expected.
_SMALL_EXPECTED = 1.0


@dataclass(slots=True, eq=False)
class Entry:
    """A submission in the order.

    costs : running sum from 0: item i costs `costs[i + 1] - costs[i]`
    taken : items already in a batch
    """

    client: str
    costs: Sequence[float]
    taken: int = 0

    @property
    def small(self) -> bool:
        """Whether it goes before large submissions."""
        return self.costs[-1] <= SMALL

    @property
    def items_left(self) -> int:
        """Items not yet in a batch."""
        return len(self.costs) - 1 - self.taken

    @property
    def cost_left(self) -> float:
        """The cost of the items not yet in a batch."""
        return self.costs[-1] - self.costs[self.taken]


E = TypeVar("E", bound=Entry)


class Portion(NamedTuple, Generic[E]):
    """Consecutive items of one submission in a batch: `size` items from index `first` on, and their cost."""

    entry: E
    first: int
    size: int
    cost: float


class _Turns(Generic[E]):
    """Submissions by client. Clients take turns of equal cost; each client's submissions keep their order."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[E]] = OrderedDict()
        self.items, self.cost = 0, 0.0

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, entry: E) -> None:
        self._clients.setdefault(entry.client, deque()).append(entry)
        self.items += entry.items_left
        self.cost += entry.cost_left

    def take(self, room: float) -> list[Portion[E]]:
        """Takes items that together cost up to `room`. The first item is taken even if it costs more."""
        portions: list[Portion[E]] = []
        while room >= 1 and self._clients:
            client, entries = next(iter(self._clients.items()))
            turn = room if len(self._clients) == 1 else min(room, TURN)
            while entries and turn >= 1:
                entry = entries[0]
                first, before = entry.taken, entry.costs[entry.taken]
                size = max(1, bisect_right(entry.costs, before + turn, first) - 1 - first)
                cost = entry.costs[first + size] - before
                portions.append(Portion(entry, first, size, cost))
                entry.taken += size
                turn, room = turn - cost, room - cost
                self.items -= size
                self.cost -= cost
                if not entry.items_left:
                    entries.popleft()
            self._clients.move_to_end(client)
            if not entries:
                del self._clients[client]
        return portions

    def remove(self, entry: E) -> None:
        entries = self._clients.get(entry.client, deque())
        if entry in entries:
            entries.remove(entry)
            self.items -= entry.items_left
            self.cost -= entry.cost_left
            if not entries:
                del self._clients[entry.client]


class FairOrder(Generic[E]):
    """The waiting submissions. Times are in seconds by any clock that never goes back."""

    def __init__(self) -> None:
        self._small, self._large = _Turns[E](), _Turns[E]()
        self._small_came = -inf

    @property
    def items(self) -> int:
        """Waiting items."""
        return self._small.items + self._large.items

    @property
    def small_items(self) -> int:
        """Waiting items of small submissions."""
        return self._small.items

    @property
    def large_waits(self) -> bool:
        """Whether a large submission waits."""
        return self._large.items > 0

    @property
    def cost(self) -> float:
        """Cost of all waiting items."""
        return self._small.cost + self._large.cost

    def cost_before(self, entry: E, slice: float) -> float:
        """Cost of the items that would run before a submission's last item, if it were added now."""
        return self._small.cost + (slice if entry.small else self._large.cost)

    def add(self, entry: E, now: float) -> None:
        """Adds a submission. None of its items may be in a batch yet."""
        if entry.small:
            self._small.add(entry)
            self._small_came = now
        else:
            self._large.add(entry)

    def take(self, room: float, slice: float, now: float) -> list[Portion[E]]:
        """Takes the items of the next batch.

        room : largest cost of the batch; a costlier item is taken alone
        slice : largest cost of the large submissions in the batch, if anybody else waits or is expected
        """
        kept = min(slice, room // _LARGE_SHARE) if self._large.items else 0
        small = self._small.take(room - kept)
        room -= sum(portion.cost for portion in small)
        if small or len(self._large) > 1 or now - self._small_came < _SMALL_EXPECTED:
            room = min(room, slice)
        return small + self._large.take(room)

    def remove(self, entry: E) -> None:
        """Removes the remaining items of a submission that failed or whose caller has gone."""
        (self._small if entry.small else self._large).remove(entry)
