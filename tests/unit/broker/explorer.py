"""Every interleaving of a small system, breadth first: the real core, a journal in memory, clients in plain words.

    giver   gives items to `in`, one request each, repeats what has no answer; a new life begins from the first item
    worker  takes one at a time, hands over to `out` and settles in one request; two of them, each may die at any point
    broker  the real Core and Ledger; dies between any two turns and loads what was committed

A state is the broker with its committed journal, the clients, and the messages on their way, one first-in first-out
channel for each direction and client. From every state every enabled action is taken; states that differ in nothing
that matters (times, numbers of leases) are visited once. What a dead client had sent may still arrive, or not.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.protocol import Deliver, Done, Give, Hello, Offer, Ping, Pong, Refused, Stranger, Take, Welcome
from common.protocol import encoder as wire
from services.broker.core import Core
from tests.unit.broker.memory_journal import MemoryJournal

LEASE_S = 10.0
DEATHS = ("dies", "dies in a turn", "is silent")


@dataclass
class Client:
    """One process: what common/client.py and a service do, one message at a time."""

    name: str
    incarnation: int = 1
    welcome: bool = False
    held: dict[int, str] = field(default_factory=dict)
    """Lease -> item."""
    open: Give | None = None
    """The request without an answer."""
    requests: int = 0
    left: list[str] = field(default_factory=list)
    """What a giver has not given yet, as far as it knows."""
    inbox: deque[Any] = field(default_factory=deque)
    outbox: deque[Any] = field(default_factory=deque)

    @property
    def peer(self) -> bytes:
        """A connection of its own for every incarnation."""
        return f"{self.name}:{self.incarnation}".encode()

    def hello(self) -> None:
        """Say Hello and nothing else until the answer."""
        self.welcome = False
        self.outbox.append(Hello(name=self.name, incarnation=str(self.incarnation)))

    def ask(self, offers: list[Offer], settles: list[int]) -> None:
        """One request."""
        self.requests += 1
        self.open = Give(request=self.requests, acked=self.requests - 1, offers=offers, settles=settles)
        if self.welcome:
            self.outbox.append(self.open)

    def hear(self, message: Any) -> None:
        """One message of the broker."""
        if isinstance(message, Welcome) and not self.welcome:
            self.welcome = True
            self.outbox.append(Ping(held=sorted(self.held)))
            if self.name != "giver":
                self.outbox.append(Take(queue="in", window=1))
            if self.open is not None:
                self.outbox.append(self.open)
        elif isinstance(message, Stranger) and self.welcome:
            self.hello()
        elif isinstance(message, Deliver):
            self.held[message.lease] = message.id
        elif isinstance(message, Pong):
            self.held = {lease: name for lease, name in self.held.items() if lease not in message.lost}
        elif isinstance(message, Done | Refused):
            self._answered(message)

    def _answered(self, message: Done | Refused) -> None:
        if self.open is None or message.request != self.open.request:
            return
        gone = self.open.settles if isinstance(message, Done) else message.leases
        self.held = {lease: name for lease, name in self.held.items() if lease not in gone}
        if isinstance(message, Done) and self.left:
            self.left.pop(0)
        self.open = None


class World:
    """One state."""

    def __init__(self, items: Sequence[str]) -> None:
        self.items = tuple(items)
        self.journal = MemoryJournal()
        self.clients = {name: Client(name) for name in ("giver", "w1", "w2")}
        self.clients["giver"].left = list(items)
        self.deaths = 0
        """So far, of anybody."""
        self.born()
        for name, client in self.clients.items():  # one after the other: what may go wrong here may after a death too
            client.hello()
            while client.outbox or client.inbox:
                if client.outbox:
                    self._broker_hears(name)
                else:
                    self._client_hears(name)

    def born(self) -> None:
        """A broker on what was committed."""
        self.journal.crash()
        self.core = Core(
            self.journal,  # type: ignore[arg-type]
            incarnation="b", heartbeat_s=1.0, lease_s=LEASE_S, max_deliveries=no_limit, now=0.0,
        )  # fmt: skip

    def actions(self, most_deaths: int) -> Iterator[tuple[str, str]]:
        """What may happen next."""
        for name, client in self.clients.items():
            if client.outbox:
                yield "broker hears", name
            if client.inbox:
                yield "client hears", name
            if client.welcome and not client.outbox and not client.inbox and client.peer not in self.core._peers:
                yield "pings", name
            if client.open is None and (client.left if name == "giver" else client.held):
                yield "asks", name
            if self.deaths < most_deaths:
                yield "dies", name
                if client.welcome:
                    yield "is silent", name
        if self.deaths < most_deaths:
            yield "dies", "broker"
            yield "dies in a turn", "broker"

    def act(self, action: str, name: str) -> "World":
        """The state after it."""
        world: World = pickle.loads(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))
        getattr(world, "_" + action.replace(" ", "_"))(name)
        return world

    def _broker_hears(self, name: str) -> None:
        client = self.clients[name]
        message = client.outbox.popleft()
        self.core.receive(client.peer, [wire.encode(message)], now=0.0, wall=0.0)
        self._end_turn()

    def _end_turn(self) -> None:
        self.core.deliver(0.0, 0.0)
        self.journal.commit()
        for peer, message, _ in self.core.outbox:
            client = self.clients[peer.decode().partition(":")[0]]
            if client.peer == peer:
                client.inbox.append(message)
        self.core.outbox.clear()

    def _client_hears(self, name: str) -> None:
        client = self.clients[name]
        client.hear(client.inbox.popleft())

    def _asks(self, name: str) -> None:
        client = self.clients[name]
        if name == "giver":
            client.ask([Offer(queue="in", id=client.left[0], frames=0)], [])
        else:
            lease, item = min(client.held.items())
            client.ask([Offer(queue="out", id=item, frames=0)], [lease])

    def _pings(self, name: str) -> None:
        """As every client does from time to time; here only where it matters."""
        client = self.clients[name]
        client.outbox.append(Ping(held=sorted(client.held)))

    def _dies(self, name: str) -> None:
        self.deaths += 1
        if name == "broker":
            self.born()
            for client in self.clients.values():  # connections are gone, with what was on them
                client.inbox.clear()
                client.outbox.clear()
                client.hello()
            return
        old = self.clients[name]
        new = self.clients[name] = Client(name, incarnation=old.incarnation + 1)
        new.left = list(self.items) if name == "giver" else []  # a giver begins anew: ids given twice have no effect
        new.hello()

    def _dies_in_a_turn(self, name: str) -> None:
        """After it heard somebody, before it committed."""
        for client in self.clients.values():
            if client.outbox:
                self.core.receive(client.peer, [wire.encode(client.outbox[0])], now=0.0, wall=0.0)
                break
        self._dies(name)

    def _is_silent(self, name: str) -> None:
        """Its leases are over, while it goes on without knowing."""
        self.deaths += 1
        session = self.core._sessions.get(name)
        for number in session.leases() if session is not None else []:
            self.core.ledger.take_back(number, failed=True)
        self.core.disconnect(session.peer if session is not None else None)
        self._end_turn()

    def key(self) -> tuple[Any, ...]:
        """What distinguishes two states: leases by their order, not by their number."""
        numbers = sorted({*self.journal.now["leases"], *(n for c in self.clients.values() for n in c.held)})
        rank = {number: place for place, number in enumerate(numbers)}

        def named(value: Any) -> Any:
            return tuple(rank.get(number, -1) for number in sorted(value))

        def told(message: Any) -> Any:
            kind = type(message).__name__
            if isinstance(message, Deliver):
                return kind, message.id, rank.get(message.lease, -1)
            if isinstance(message, Ping):
                return kind, named(message.held)
            if isinstance(message, Pong):
                return kind, named(message.lost)
            if isinstance(message, Give):
                return kind, message.request, tuple(o.id for o in message.offers), named(message.settles)
            return kind, getattr(message, "request", None), getattr(message, "incarnation", None)

        now = self.journal.now
        clients = tuple(
            (c.incarnation, c.welcome, tuple((rank[n], i) for n, i in sorted(c.held.items())), c.open and told(c.open),
             tuple(c.left), tuple(map(told, c.inbox)), tuple(map(told, c.outbox)))
            for c in self.clients.values()
        )  # fmt: skip
        sessions = tuple(
            (s.name, s.incarnation, s.peer, s.resuming, tuple(s.windows.items()), s.acked)
            for s in self.core._sessions.values()
        )
        leases = tuple((rank[n], *pair) for n, pair in sorted(now["leases"].items()))
        items = tuple((queue, name) for queue, name, _ in (now["items"][seq] for seq in sorted(now["items"])))
        return clients, sessions, leases, items, tuple(sorted(now["done"])), tuple(sorted(now["settled"])), self.deaths


def no_limit(queue: str) -> None:
    """Items are delivered for ever."""


def explore(*, items: Sequence[str], most_deaths: int, judge: Callable[[World], None]) -> tuple[int, int]:
    """Visit every state; `judge` raises on one that may not be. Returns states, and those where nothing can happen."""
    first = World(items)
    seen, todo, ends = {first.key()}, deque([first]), 0
    while todo:
        world = todo.popleft()
        judge(world)
        actions = list(world.actions(most_deaths))
        ends += not any(action not in DEATHS for action, _ in actions)
        for action, name in actions:
            after = world.act(action, name)
            if (key := after.key()) not in seen:
                seen.add(key)
                todo.append(after)
    return len(seen), ends
