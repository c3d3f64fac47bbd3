"""The lease queue as a state machine: messages and times in, messages out. No socket, no clock, no thread.

    turn:  begin -> handle(peer, message, frames, now)* -> tick(now) -> deliver(now) -> commit -> send `outbox`

Nothing leaves before the commit, so an answer means that what it answers is on disk. Everything the core holds can be
rebuilt from the journal, except connections and windows, which clients repeat after `Stranger`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from common import protocol
from common.protocol import (
    Bye,
    Deliver,
    Done,
    FromBroker,
    Give,
    Hello,
    Ping,
    Pong,
    Refused,
    Stranger,
    Take,
    ToBroker,
    Watch,
    Welcome,
)
from services.broker.journal import Journal
from services.broker.state import Item, Lease, Peer, Place, Queue, Register, Session

STATS_PREFIX = "queue/"


class Outgoing(NamedTuple):
    """A message to a client; the frames of a delivery are read when it is sent."""

    peer: Peer
    message: FromBroker
    place: Place | None = None


class Core:
    """Queues, leases, sessions and registers. `now` is monotonic seconds, `wall` Unix seconds."""

    def __init__(
        self,
        journal: Journal,
        *,
        incarnation: str,
        heartbeat_s: float,
        lease_s: float,
        max_deliveries: Callable[[str], int | None],
        now: float,
    ) -> None:
        """Rebuild from the journal; leases of the last broker get a fresh deadline."""
        self.outbox: list[Outgoing] = []
        self.queues: dict[str, Queue] = {}
        self.num_refused, self.num_expired, self.num_given, self.num_settled = 0, 0, 0, 0
        self.buried: list[Item] = []
        """Items that became dead letters since the caller last emptied this list."""
        self._journal = journal
        self._welcome = Welcome(broker=incarnation, heartbeat_s=heartbeat_s, lease_s=lease_s)
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self._sessions: dict[str, Session] = {}
        self._peers: dict[Peer, Session] = {}
        self._leases: dict[int, Lease] = {}
        self._stats_sent: dict[tuple[str, str], protocol.QueueStats] = {}
        self._stats_version = 0
        self._load(now)

    def _load(self, now: float) -> None:
        loaded = self._journal.load()
        self._next_seq, self._next_lease = loaded.next_seq, loaded.next_lease
        self._registers = loaded.registers
        self._sessions = {name: Session(name, text, now) for name, text in loaded.sessions.items()}
        leased = {seq: (number, session) for number, seq, session in loaded.leases}
        for item, dead in loaded.items:
            queue = self._queue(item.queue)
            if dead:
                queue.dead[item.seq] = item
            elif item.seq in leased:
                queue.items[item.seq] = item
                self._hold(*leased[item.seq], item, now)
            else:
                queue.add(item)

    def handle(self, peer: Peer, message: ToBroker, frames: Sequence[bytes], *, now: float, wall: float) -> None:
        """Apply one message of a client."""
        if isinstance(message, Hello):
            self._hello(peer, message, now)
            return
        session = self._peers.get(peer)
        if session is None:
            self._say(peer, Stranger())
            return
        session.seen = now
        if isinstance(message, Take):
            session.windows[message.queue] = message.window
        elif isinstance(message, Give):
            self._give(session, message, frames, wall)
        elif isinstance(message, Watch):
            self._watch(session, message.register, wall)
        elif isinstance(message, Ping):
            self._ping(session, message, now)
        elif isinstance(message, Bye):
            self._end(session, failed=False)

    def tick(self, now: float) -> None:
        """Take back what silent clients hold."""
        for lease in [lease for lease in self._leases.values() if lease.deadline < now]:
            self.num_expired += 1
            self._release(lease, failed=True)
        for session in [s for s in self._sessions.values() if s.seen + self._lease_s < now and not s.leases()]:
            self._end(session, failed=True)

    def deliver(self, now: float, wall: float) -> None:
        """Hand ready items to the sessions with the most room, then tell watchers what changed."""
        for name, queue in list(self.queues.items()):
            takers = [s for s in self._sessions.values() if s.peer is not None and s.room(name) > 0]
            while queue.num_ready and takers:
                taker = max(takers, key=lambda s: s.room(name))
                self._deliver(queue.pop_ready(), taker, now)
                takers = [s for s in takers if s.room(name) > 0]
        self._tell_stats(wall)

    def stats(self, name: str, wall: float) -> protocol.QueueStats:
        """What is in a queue."""
        queue = self._queue(name)
        oldest = queue.oldest()
        return protocol.QueueStats(
            ready=queue.num_ready,
            leased=queue.num_leased,
            credit=sum(max(0, s.room(name)) for s in self._sessions.values() if s.peer is not None),
            oldest_s=max(0.0, wall - oldest.given_at) if oldest else 0.0,
            dead=[item.id for item in queue.dead.values()],
        )

    def _hello(self, peer: Peer, message: Hello, now: float) -> None:
        session = self._sessions.get(message.name)
        if session is not None and session.incarnation != message.incarnation:
            self._end(session, failed=True)
            session = None
        if session is None:
            session = self._sessions[message.name] = Session(message.name, message.incarnation, now)
            self._journal.open_session(session.name, session.incarnation)
        if session.peer is not None:
            self._peers.pop(session.peer, None)
        session.peer, session.seen = peer, now
        self._peers[peer] = session
        self._say(peer, self._welcome)

    def _give(self, session: Session, give: Give, frames: Sequence[bytes], wall: float) -> None:
        assert session.peer is not None
        if self._journal.is_done(session.name, give.request):
            self._say(session.peer, Done(request=give.request))
            return
        refused = self._refusal(session, give, len(frames))
        if refused is not None:
            self.num_refused += 1
            self._say(session.peer, refused)
            return
        for number in give.settles:
            self._settle(self._leases[number], give.reason)
        at = 0
        for offer in give.offers:
            self._add(offer.queue, offer.id, frames[at : at + offer.frames], wall)
            at += offer.frames
        for write in give.writes:
            self._write(write.register, write.value)
        self._journal.mark_done(session.name, give.request, give.acked)
        self._say(session.peer, Done(request=give.request))

    def _refusal(self, session: Session, give: Give, num_frames: int) -> Refused | None:
        """Why a request cannot be done, or None."""
        owned = {n for n in give.settles if n in self._leases and self._leases[n].session == session.name}
        lost = [number for number in give.settles if number not in owned]
        reason = ""
        if lost or len(owned) != len(give.settles):
            reason = "a lease is lost or named twice"
        elif sum(offer.frames for offer in give.offers) != num_frames:
            reason = "the frames do not fit the offers"
        for write in give.writes:
            if write.expected is not None and write.expected != self._register(write.register).version:
                reason = f"register {write.register} has version {self._register(write.register).version}"
        return Refused(request=give.request, reason=reason, leases=lost) if reason else None

    def _ping(self, session: Session, ping: Ping, now: float) -> None:
        assert session.peer is not None
        lost = []
        for number in ping.held:
            lease = self._leases.get(number)
            if lease is None or lease.session != session.name:
                lost.append(number)
            else:
                lease.deadline = now + self._lease_s
        self._say(session.peer, Pong(lost=lost))

    def _watch(self, session: Session, name: str, wall: float) -> None:
        assert session.peer is not None
        session.watches.add(name)
        if name.startswith(STATS_PREFIX):
            self._send_stats(session, name, self.stats(name.removeprefix(STATS_PREFIX), wall))
        else:
            self._say_register(session.peer, name)

    def _end(self, session: Session, *, failed: bool) -> None:
        """Close a session; its leases go back."""
        for number in session.leases():
            self._release(self._leases[number], failed=failed)
        if session.peer is not None:
            self._peers.pop(session.peer, None)
        del self._sessions[session.name]
        self._journal.close_session(session.name)
        self._stats_sent = {key: value for key, value in self._stats_sent.items() if key[0] != session.name}

    def _deliver(self, item: Item, session: Session, now: float) -> None:
        assert session.peer is not None
        number, self._next_lease = self._next_lease, self._next_lease + 1
        item.deliveries += 1
        item.holders.append(session.name)
        self._hold(number, session.name, item, now)
        self._journal.lease(number, item, session.name)
        message = Deliver(queue=item.queue, id=item.id, lease=number, delivery=item.deliveries)
        self.outbox.append(Outgoing(session.peer, message, item.place))

    def _hold(self, number: int, session: str, item: Item, now: float) -> None:
        self._leases[number] = Lease(number, item, session, now + self._lease_s)
        holder = self._sessions.get(session)
        if holder is not None:
            holder.held.setdefault(item.queue, set()).add(number)

    def _release(self, lease: Lease, *, failed: bool) -> None:
        """End a lease without a settlement: back to the front, or to the dead after too many failures."""
        item, queue = lease.item, self._queue(lease.item.queue)
        if not failed:
            item.deliveries -= 1
        self._drop(lease)
        self._journal.release(lease.number, item)
        limit = self._max_deliveries(item.queue)
        if failed and limit is not None and item.deliveries >= limit:
            queue.bury(item)
            self._journal.bury(item)
            self.buried.append(item)
        else:
            queue.give_back(item)

    def _settle(self, lease: Lease, reason: str) -> None:
        self._drop(lease)
        self._queue(lease.item.queue).settle(lease.item)
        self._journal.settle(lease.number, lease.item, reason)
        self.num_settled += 1

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.number]
        holder = self._sessions.get(lease.session)
        if holder is not None:
            holder.held[lease.item.queue].discard(lease.number)

    def _add(self, queue: str, name: str, frames: Sequence[bytes], wall: float) -> None:
        """A new item, unless its id was given to this queue before."""
        if self._journal.was_given(queue, name):
            return
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        item = Item(seq, queue, name, self._journal.write_frames(frames), wall)
        self._journal.add(item)
        self._queue(queue).add(item)
        self.num_given += 1

    def _write(self, name: str, value: bytes) -> None:
        register = self._registers[name] = Register(self._register(name).version + 1, value)
        self._journal.write_register(name, register)
        for session in self._sessions.values():
            if name in session.watches and session.peer is not None:
                self._say_register(session.peer, name)

    def _tell_stats(self, wall: float) -> None:
        for session in self._sessions.values():
            for name in session.watches:
                if name.startswith(STATS_PREFIX) and session.peer is not None:
                    stats = self.stats(name.removeprefix(STATS_PREFIX), wall)
                    if _differ(stats, self._stats_sent.get((session.name, name))):
                        self._send_stats(session, name, stats)

    def _send_stats(self, session: Session, name: str, stats: protocol.QueueStats) -> None:
        assert session.peer is not None
        self._stats_sent[session.name, name] = stats
        self._stats_version += 1
        value = protocol.encoder.encode(stats)
        self._say(session.peer, protocol.Register(name=name, version=self._stats_version, value=value))

    def _say_register(self, peer: Peer, name: str) -> None:
        register = self._register(name)
        self._say(peer, protocol.Register(name=name, version=register.version, value=register.value))

    def _say(self, peer: Peer, message: FromBroker) -> None:
        self.outbox.append(Outgoing(peer, message))

    def _register(self, name: str) -> Register:
        return self._registers.get(name, Register())

    def _queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue())


def _differ(new: protocol.QueueStats, old: protocol.QueueStats | None) -> bool:
    """Whether a watcher should hear of it; the age of the oldest item alone is no news."""
    return old is None or (new.ready, new.leased, new.credit, new.dead) != (old.ready, old.leased, old.credit, old.dead)
