"""Items and leases: given, lent, kept, taken back, settled, buried. Every change is in the journal when it is made.

add -> ready -> lend -> leased -> settle
                 ^         |
                 +--- take_back --- bury (delivered too often) --- bring_back (a person decides)
"""

from collections.abc import Callable, Sequence

from services.broker.journal import Journal, Loaded
from services.broker.state import Item, Lease, Queue, Session

DeliveryLimit = Callable[[str], int | None]
"""Queue -> deliveries without a settlement before an item is dead; None: no limit."""


class Ledger:
    """All queues of the broker and who holds what of them."""

    def __init__(self, journal: Journal, *, lease_s: float, max_deliveries: DeliveryLimit) -> None:
        self.queues: dict[str, Queue] = {}
        self.buried: list[tuple[str, Item]] = []
        """What became of dead letters since the caller last emptied this list: `dead`, `retried` or `dropped`."""
        self.num_given, self.num_settled, self.num_expired = 0, 0, 0
        self._journal = journal
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self._leases: dict[int, Lease] = {}
        self.last_seq, self._last_lease = 0, 0

    def load(self, loaded: Loaded, now: float) -> None:
        """Take over what the last broker left; its leases get a fresh deadline."""
        self.last_seq, self._last_lease = loaded.last_seq, loaded.last_lease
        leased = {seq: (number, loaded.sessions[session]) for number, seq, session in loaded.leases}
        for item, dead in loaded.items:
            queue = self.queue(item.queue)
            if dead:
                queue.dead[item.seq] = item
            elif item.seq in leased:
                queue.items[item.seq] = item
                self._hold(*leased[item.seq], item, now)
            else:
                queue.add(item)

    def queue(self, name: str) -> Queue:
        """A queue; it begins when it is first named."""
        return self.queues.setdefault(name, Queue())

    def add(self, queue: str, name: str, frames: Sequence[bytes], wall: float) -> None:
        """A new item, unless its id was given to this queue before."""
        if self._journal.was_given(queue, name):
            return
        self.last_seq += 1
        item = Item(self.last_seq, queue, name, self._journal.segments.write(frames), wall)
        self._journal.add(item)
        self.queue(queue).add(item)
        self.num_given += 1

    def lend(self, queue: str, session: Session, now: float) -> Lease:
        """Lease the oldest ready item to a session."""
        item = self.queue(queue).pop_ready()
        self._last_lease += 1
        item.deliveries += 1
        item.holders.append(session.name)
        self._journal.lend(self._last_lease, item, session.name)
        return self._hold(self._last_lease, session, item, now)

    def keep(self, number: int, session: Session, now: float) -> bool:
        """Prolong a lease; False if the session does not hold it."""
        if not self.is_held(number, session):
            return False
        self._leases[number].deadline = now + self._lease_s
        return True

    def is_held(self, number: int, session: Session) -> bool:
        """Whether the session holds this lease."""
        lease = self._leases.get(number)
        return lease is not None and lease.session is session

    def settle(self, number: int, reason: str) -> None:
        """A leased item is finished."""
        item = self._drop(number).item
        self._journal.settle(number, item, reason)
        self.queue(item.queue).settle(item)
        self.num_settled += 1

    def take_back(self, number: int, *, failed: bool) -> None:
        """End a lease without a settlement: the item goes to the front, or to the dead after too many failures."""
        item = self._drop(number).item
        if not failed:
            item.deliveries -= 1
        self._journal.take_back(number, item)
        limit = self._max_deliveries(item.queue)
        if failed and limit is not None and item.deliveries >= limit:
            self._journal.bury(item)
            self.queue(item.queue).bury(item)
            self.buried.append(("dead", item))
        else:
            self.queue(item.queue).give_back(item)

    def is_dead(self, queue: str, name: str) -> bool:
        """Whether a queue has this dead letter."""
        return any(item.id == name for item in self.queue(queue).dead.values())

    def bring_back(self, queue: str, name: str, *, drop: bool) -> None:
        """A dead letter is ready again, as if never delivered; or it is gone for good."""
        item = next(item for item in self.queue(queue).dead.values() if item.id == name)
        del self.queue(queue).dead[item.seq]
        if drop:
            self._journal.remove(item, "dead letter dropped")
        else:
            item.deliveries = 0
            self._journal.revive(item)
            self.queue(queue).add(item)
        self.buried.append(("dropped" if drop else "retried", item))

    def expire(self, now: float) -> None:
        """Take back the leases that nobody has kept."""
        for number in [lease.number for lease in self._leases.values() if lease.deadline < now]:
            self.num_expired += 1
            self.take_back(number, failed=True)

    def _hold(self, number: int, session: Session, item: Item, now: float) -> Lease:
        lease = self._leases[number] = Lease(number, item, session, now + self._lease_s)
        session.held.setdefault(item.queue, set()).add(number)
        return lease

    def _drop(self, number: int) -> Lease:
        lease = self._leases.pop(number)
        lease.session.held[lease.item.queue].discard(number)
        return lease
