"""A lease queue in the plainest words: what the broker must do, without heaps, journals or connections that break.

Fed with what is said and what the broker delivers; raises when a delivery is not the one that the rules allow.
"""

from dataclasses import dataclass, field

from common.protocol import Deliver, QueueStats


@dataclass
class Held:
    """A lease."""

    item: int
    client: str
    deadline: float


@dataclass
class Model:
    """One queue; items are numbers in the order given."""

    lease_s: float
    limit: int | None
    now: float
    ready: set[int] = field(default_factory=set)
    leases: dict[int, Held] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    deliveries: dict[int, int] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)
    """Of those who are connected and have said what they want."""
    seen: dict[str, float] = field(default_factory=dict)
    """Of those who are connected."""

    def held_by(self, client: str) -> set[int]:
        return {number for number, held in self.leases.items() if held.client == client}

    def room(self, client: str) -> int:
        return max(0, self.windows.get(client, 0) - len(self.held_by(client)))

    def give(self, item: int) -> None:
        self.ready.add(item)
        self.deliveries[item] = 0

    def settle(self, number: int) -> None:
        self.finished.append(self.leases.pop(number).item)

    def take_back(self, numbers: set[int], *, failed: bool) -> None:
        for number in sorted(numbers):
            item = self.leases.pop(number).item
            self.deliveries[item] -= not failed
            if failed and self.limit is not None and self.deliveries[item] >= self.limit:
                self.dead.append(item)
            else:
                self.ready.add(item)

    def disconnect(self, client: str) -> None:
        self.windows.pop(client, None)
        self.seen.pop(client, None)

    def hello(self, client: str) -> None:
        self.disconnect(client)
        self.seen[client] = self.now

    def expire(self) -> None:
        """Leases and clients whose time is over."""
        self.take_back({number for number, held in self.leases.items() if held.deadline < self.now}, failed=True)
        for client in [client for client, seen in self.seen.items() if seen + self.lease_s < self.now]:
            self.disconnect(client)

    def restart(self) -> None:
        """Of the broker: connections are gone, leases get a fresh deadline."""
        self.seen.clear()
        self.windows.clear()
        for held in self.leases.values():
            held.deadline = self.now + self.lease_s

    def deliver(self, message: Deliver, client: str) -> None:
        """The broker's choice: the oldest ready item, to somebody with room."""
        item = int(message.id)
        assert item == min(self.ready)
        assert self.room(client) > 0
        self.ready.remove(item)
        self.deliveries[item] += 1
        assert message.delivery == self.deliveries[item]
        assert message.lease not in self.leases
        self.leases[message.lease] = Held(item, client, self.now + self.lease_s)

    def check(self, stats: QueueStats) -> None:
        """After a turn: everything is somewhere, once, and nobody waits while there is work."""
        places = [*self.ready, *(held.item for held in self.leases.values()), *self.finished, *self.dead]
        assert sorted(places) == list(range(len(places)))
        assert (stats.ready, stats.leased) == (len(self.ready), len(self.leases))
        assert sorted(stats.dead, key=int) == sorted(map(str, self.dead), key=int)
        assert stats.credit == sum(map(self.room, self.windows))
        assert not self.ready or stats.credit == 0
