"""What the broker knows: items, queues, leases, sessions. Plain data, changed only by ledger.py and core.py."""

import heapq
from dataclasses import dataclass, field

from common.protocol import QueueStats

Peer = bytes
"""Routing id of a connection; a client that reconnects gets another one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the payload frames of an item lie: one after the other in one segment."""

    segment: int
    offset: int
    lengths: tuple[int, ...]


@dataclass(slots=True)
class Item:
    """One unsettled queue item. `seq` orders all items by the moment they were given."""

    seq: int
    queue: str
    id: str
    place: Place
    given_at: float
    """Unix seconds."""
    deliveries: int = 0
    holders: list[str] = field(default_factory=list)
    """Who held it, in order; shown when it is dead."""


@dataclass(slots=True)
class Session:
    """A client by name. `peer` is None while it is silent or unreachable; then it wants nothing and watches nothing."""

    name: str
    incarnation: str
    peer: Peer | None = None
    seen: float = 0.0
    """When it last spoke, in monotonic seconds."""
    resuming: bool = False
    """It said Hello, and its first ping will tell what it holds."""
    windows: dict[str, int] = field(default_factory=dict)
    """By queue: how many leases it wants to hold at most."""
    held: dict[str, set[int]] = field(default_factory=dict)
    """By queue: the leases it holds."""
    watches: dict[str, QueueStats | None] = field(default_factory=dict)
    """By register: the statistics that were sent last, None for an ordinary register."""
    done: set[int] = field(default_factory=set)
    """Requests that are committed and whose answers the client may not have seen."""
    acked: int = 0
    """Requests up to this one have been answered, as the client says; forgotten with the broker's process."""

    def connect(self, peer: Peer, now: float) -> None:
        """It speaks on this connection now, and will state its wishes again."""
        self.disconnect()
        self.peer, self.seen, self.resuming = peer, now, True

    def disconnect(self) -> None:
        """Nothing can be sent to it."""
        self.peer = None
        self.windows.clear()
        self.watches.clear()

    def room(self, queue: str) -> int:
        """How many more items of a queue it accepts."""
        return max(0, self.windows.get(queue, 0) - len(self.held.get(queue, ())))

    def leases(self) -> list[int]:
        """All leases, oldest first."""
        return sorted(number for numbers in self.held.values() for number in numbers)


@dataclass(slots=True)
class Lease:
    """The right of a session to work on an item until `deadline` (monotonic seconds)."""

    number: int
    item: Item
    session: Session
    deadline: float


@dataclass(frozen=True, slots=True)
class Register:
    """The latest value of something; version 0 is unset."""

    version: int = 0
    value: bytes = b""


class Queue:
    """Unsettled items of one name: those ready, in the order given, those leased, and the dead."""

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        """Ready and leased, by seq; a dict keeps the order, the first is the oldest."""
        self.dead: dict[int, Item] = {}
        self._ready: list[int] = []

    def add(self, item: Item) -> None:
        """A new item, ready."""
        self.items[item.seq] = item
        heapq.heappush(self._ready, item.seq)

    def give_back(self, item: Item) -> None:
        """A leased item is ready again, before all that were given later."""
        heapq.heappush(self._ready, item.seq)

    def pop_ready(self) -> Item:
        """The oldest ready item."""
        return self.items[heapq.heappop(self._ready)]

    def bury(self, item: Item) -> None:
        """A leased item becomes a dead letter."""
        self.dead[item.seq] = self.items.pop(item.seq)

    def settle(self, item: Item) -> None:
        """A leased item is finished."""
        del self.items[item.seq]

    @property
    def num_ready(self) -> int:
        """Items that wait for credit."""
        return len(self._ready)

    @property
    def num_leased(self) -> int:
        """Items that a client works on."""
        return len(self.items) - len(self._ready)

    def oldest(self) -> Item | None:
        """The unsettled item that was given first."""
        return next(iter(self.items.values()), None)
