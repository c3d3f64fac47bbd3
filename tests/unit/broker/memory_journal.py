"""The broker's journal without a disk: what was committed, and what was not yet."""

import copy
from typing import Any

from services.broker.journal import Loaded
from services.broker.state import Item, Place, Register, Session


class Payloads:
    """Segments without a disk: a payload is nothing, a place is a name."""

    def write(self, frames: Any) -> Place:
        """Nowhere."""
        return Place(0, 0, ())


class MemoryJournal:
    """What the core asks of its journal, with commits and crashes: `last` is what a broker born now would load."""

    def __init__(self) -> None:
        self.segments = Payloads()
        self.now: dict[str, Any] = {"items": {}, "given": set(), "leases": {}, "sessions": {}, "gone": set()}
        self.now |= {"done": set(), "seq": 0, "lease": 0, "settled": []}
        self.last = copy.deepcopy(self.now)

    def commit(self) -> None:
        """This turn is on disk."""
        self.last = copy.deepcopy(self.now)

    def crash(self) -> None:
        """What was not committed is gone."""
        self.now = copy.deepcopy(self.last)

    def load(self) -> Loaded:
        """As services/broker/journal.py."""
        now = self.now
        sessions = {name: Session(name, incarnation) for name, incarnation in now["sessions"].items()}
        for name, request in now["done"]:
            sessions[name].done.add(request)
        items = [
            (Item(seq, queue, name, Place(0, 0, ()), 0.0, deliveries, []), False)
            for seq, (queue, name, deliveries) in sorted(now["items"].items())
        ]
        leases = [(number, seq, session) for number, (seq, session) in sorted(now["leases"].items())]
        return Loaded(items, leases, sessions, {}, now["seq"], now["lease"])

    def was_given(self, queue: str, name: str) -> bool:
        """As the journal."""
        return (queue, name) in self.now["given"]

    def add(self, item: Item) -> None:
        """As the journal."""
        self.now["items"][item.seq] = (item.queue, item.id, 0)
        self.now["given"].add((item.queue, item.id))
        self.now["seq"] = item.seq

    def lend(self, number: int, item: Item, session: str) -> None:
        """As the journal."""
        self.now["leases"][number] = (item.seq, session)
        self.now["lease"] = number
        self._count(item)

    def take_back(self, number: int, item: Item) -> None:
        """As the journal."""
        del self.now["leases"][number]
        self._count(item)

    def settle(self, number: int, item: Item, reason: str) -> None:
        """As the journal; remembers every settlement, for the judge."""
        del self.now["leases"][number]
        del self.now["items"][item.seq]
        self.now["settled"].append((item.queue, item.id))

    def open_session(self, name: str, incarnation: str) -> None:
        """As the journal."""
        self.now["sessions"][name] = incarnation

    def close_session(self, name: str) -> None:
        """As the journal."""
        del self.now["sessions"][name]
        self.now["done"] = {pair for pair in self.now["done"] if pair[0] != name}

    def supersede(self, name: str, incarnation: str) -> None:
        """As the journal."""
        self.now["gone"].add((name, incarnation))

    def is_superseded(self, name: str, incarnation: str) -> bool:
        """As the journal."""
        return (name, incarnation) in self.now["gone"]

    def write_register(self, name: str, register: Register) -> None:
        """No register is written here."""
        raise AssertionError(name)

    def mark_done(self, name: str, request: int, acked: int) -> None:
        """As the journal."""
        self.now["done"] = {pair for pair in self.now["done"] if pair[0] != name or pair[1] > acked} | {(name, request)}

    def _count(self, item: Item) -> None:
        queue, name, _ = self.now["items"][item.seq]
        self.now["items"][item.seq] = (queue, name, item.deliveries)
