"""The broker as a state machine: messages and times in, messages out. No socket, no clock, no thread.

    turn:  begin -> receive(peer, parts, now, wall)* -> tick(now) -> deliver(now, wall) -> commit -> send `outbox`

Nothing leaves before the commit, so an answer means that what it answers is on disk. Everything the core holds can be
rebuilt from the journal, except what clients say again after `Hello`: connections, windows, watches.

Whatever a peer sends, the core goes on: what is no message, or asks for what may not be, is refused and counted. Not
covered: a peer whose key may make work (the filter, the learner; anybody without keys) can fill memory and disk.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from common import protocol
from common.gate import NOBODY, Origin
from common.protocol import (
    DISK_FULL,
    PROTOCOL_VERSION,
    Bye,
    Deliver,
    Done,
    FromBroker,
    Give,
    Hello,
    Ping,
    Pong,
    QueueStats,
    Refused,
    Stranger,
    Take,
    ToBroker,
    Unwelcome,
    Watch,
    Welcome,
    Write,
)
from common.refusals import Refusals
from services.broker.access import trespass
from services.broker.flaws import flaw
from services.broker.journal import Journal
from services.broker.ledger import DeliveryLimit, Ledger
from services.broker.state import Peer, Place, Register, Session
from services.broker.statistics import are_news, stats_of

STATS_PREFIX = "queue/"


class Outgoing(NamedTuple):
    """A message to a client; the frames of a delivery are read when it is sent."""

    peer: Peer
    message: FromBroker
    place: Place | None = None


class Core:
    """Sessions, requests and registers. `now` is monotonic seconds, `wall` Unix seconds."""

    def __init__(
        self,
        journal: Journal,
        *,
        incarnation: str,
        heartbeat_s: float,
        lease_s: float,
        max_deliveries: DeliveryLimit,
        now: float,
        refused: Refusals | None = None,
    ) -> None:
        """Rebuild from the journal."""
        self.outbox: list[Outgoing] = []
        self.refused = refused or Refusals()
        """Messages that were not obeyed."""
        self.is_full = False
        """Whether the disk has no room for more items; set from outside."""
        self.ledger = Ledger(journal, lease_s=lease_s, max_deliveries=max_deliveries)
        self._journal = journal
        self._welcome = Welcome(broker=incarnation, heartbeat_s=heartbeat_s, lease_s=lease_s)
        self._silence_s = lease_s
        self._peers: dict[Peer, Session] = {}
        self._stats_version = 0
        loaded = journal.load()
        self._registers = loaded.registers
        self._sessions = loaded.sessions
        self.ledger.load(loaded, now)

    def receive(self, peer: Peer, parts: Sequence[bytes], *, now: float, wall: float, origin: Origin = NOBODY) -> None:
        """Apply one message of a client."""
        session = self._peers.get(peer)
        who = f"{session.name if session else 'no session'}, {origin}"
        try:
            message = protocol.to_broker_decoder.decode(parts[0] if parts else b"")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            self.refused.add("malformed", who)
            return
        if wrong := trespass(origin.key, message):
            self.refused.add("not allowed", f"{who}, to {wrong}")
            self._forbid(peer, message, f"the key {origin.key} may not {wrong}")
        elif isinstance(message, Hello):
            self._hello(peer, message, now)
        elif session is None:
            self.refused.add("stranger", who)
            self._say(peer, Stranger())
        else:
            session.seen = now
            self._apply(session, message, parts[1:], now, wall)

    def receive_damaged(self, peer: Peer, origin: Origin = NOBODY) -> None:
        """A message that is not what was sent: its client says everything again, which is harmless."""
        session = self._peers.get(peer)
        self.refused.add("damaged", f"{session.name if session else 'no session'}, {origin}")
        self.disconnect(peer)
        self._say(peer, Stranger())

    def _forbid(self, peer: Peer, message: ToBroker, reason: str) -> None:
        """A request is answered as its client expects; anything else ends the client, which has a wrong key."""
        if isinstance(message, Give):
            self._say(peer, Refused(request=message.request, reason=reason))
        else:
            self._say(peer, Unwelcome(reason=reason))

    def _apply(self, session: Session, message: ToBroker, frames: Sequence[bytes], now: float, wall: float) -> None:
        if isinstance(message, Give):
            self._give(session, message, frames, wall)
        elif isinstance(message, Ping):
            self._ping(session, message, now)
        elif isinstance(message, Take):
            session.windows[message.queue] = message.window
        elif isinstance(message, Watch):
            self._watch(session, message.register, wall)
        elif isinstance(message, Bye):
            self._end(session, failed=False)

    def tick(self, now: float) -> None:
        """Take back what silent clients hold. Their sessions stay: the answers they have not seen are remembered."""
        self.ledger.expire(now)
        for peer in [peer for peer, session in self._peers.items() if session.seen + self._silence_s < now]:
            self.disconnect(peer)

    def disconnect(self, peer: Peer | None) -> None:
        """Nothing can be sent to this peer: it is a stranger until it says Hello."""
        session = self._peers.pop(peer, None) if peer is not None else None
        if session is not None:
            session.disconnect()

    def deliver(self, now: float, wall: float) -> None:
        """Hand ready items to the sessions with the most room, then tell watchers what changed."""
        for name, queue in self.ledger.queues.items():
            takers = [session for session in self._peers.values() if session.room(name)] if queue.num_ready else []
            while queue.num_ready and takers:
                taker = max(takers, key=lambda session: session.room(name))
                self._deliver(name, taker, now)
                if not taker.room(name):
                    takers.remove(taker)
        for session in self._peers.values():
            for register in session.watches:
                self._tell_stats(session, register, wall)

    def stats(self, name: str, wall: float) -> QueueStats:
        """What is in a queue."""
        return stats_of(self.ledger.queue(name), self._peers.values(), name, wall)

    def _hello(self, peer: Peer, hello: Hello, now: float) -> None:
        """Open or resume a session; a new incarnation ends the session of the one before."""
        reason = self._unwelcome(hello)
        if reason:
            self.refused.add("unwelcome", hello.name)
            self._say(peer, Unwelcome(reason=reason))
            return
        session = self._sessions.get(hello.name)
        if session is not None and session.incarnation != hello.incarnation:
            self._journal.supersede(session.name, session.incarnation)
            self._end(session, failed=True)
            session = None
        if session is None:
            session = self._sessions[hello.name] = Session(hello.name, hello.incarnation)
            self._journal.open_session(session.name, session.incarnation)
        self.disconnect(session.peer)
        self.disconnect(peer)  # under another name
        session.connect(peer, now)
        self._peers[peer] = session
        self._say(peer, self._welcome)

    def _unwelcome(self, hello: Hello) -> str:
        """Why there will never be a session for this client, or nothing."""
        if hello.protocol != PROTOCOL_VERSION:
            return (
                f"it speaks protocol {PROTOCOL_VERSION}, the client {hello.protocol}: run the same release everywhere"
            )
        if self._journal.is_superseded(hello.name, hello.incarnation):
            return "another process took this name: end one of the two, or give it another --replica"
        return ""

    def _end(self, session: Session, *, failed: bool) -> None:
        """Close a session for good; its leases go back."""
        for number in session.leases():
            self.ledger.take_back(number, failed=failed)
        self.disconnect(session.peer)
        del self._sessions[session.name]
        self._journal.close_session(session.name)

    def _ping(self, session: Session, ping: Ping, now: float) -> None:
        """Keep what it names. After Hello nothing is on its way, so what its first ping does not name never arrived."""
        self._say(
            session.peer, Pong(lost=[number for number in ping.held if not self.ledger.keep(number, session, now)])
        )
        if session.resuming:
            session.resuming = False
            for number in set(session.leases()).difference(ping.held):
                self.ledger.take_back(number, failed=False)

    def _give(self, session: Session, give: Give, frames: Sequence[bytes], wall: float) -> None:
        """All of a request or nothing."""
        if give.request <= session.acked:
            self.refused.add("answered before", session.name)  # a message that came twice, the second time late
            return
        session.acked = max(session.acked, give.acked)
        if give.request not in session.done:
            refusal = self._refusal(session, give, len(frames))
            if refusal:
                self.refused.add(refusal, session.name)
                lost = [number for number in give.settles if not self.ledger.is_held(number, session)]
                self._say(session.peer, Refused(request=give.request, reason=refusal, leases=lost))
                return
            self._carry_out(give, frames, wall)
            session.done = {request for request in session.done if request > give.acked} | {give.request}
            self._journal.mark_done(session.name, give.request, give.acked)
        self._say(session.peer, Done(request=give.request))

    def _refusal(self, session: Session, give: Give, num_frames: int) -> str:
        """Why a request cannot be carried out, or nothing."""
        if self.is_full and (give.offers or give.writes):
            return DISK_FULL
        if not all(self.ledger.is_held(number, session) for number in give.settles):
            return "lease lost"
        if not all(self._is_expected(write) for write in give.writes):
            return "register has another version"
        if not all(self.ledger.is_dead(letter.queue, letter.id) for letter in give.letters):
            return "no such dead letter"
        return flaw(give, num_frames)

    def _is_expected(self, write: Write) -> bool:
        return write.expected is None or write.expected == self._register(write.register).version

    def _carry_out(self, give: Give, frames: Sequence[bytes], wall: float) -> None:
        for number in give.settles:
            self.ledger.settle(number, give.reason)
        at = 0
        for offer in give.offers:
            self.ledger.add(offer.queue, offer.id, frames[at : at + offer.frames], wall)
            at += offer.frames
        for write in give.writes:
            self._write(write.register, write.value)
        for letter in give.letters:
            self.ledger.bring_back(letter.queue, letter.id, drop=letter.action == "drop")

    def _write(self, name: str, value: bytes) -> None:
        register = self._registers[name] = Register(self._register(name).version + 1, value)
        self._journal.write_register(name, register)
        for session in self._peers.values():
            if name in session.watches:
                self._say_register(session, name)

    def _watch(self, session: Session, register: str, wall: float) -> None:
        session.watches[register] = None
        if register.startswith(STATS_PREFIX):
            self._tell_stats(session, register, wall)
        else:
            self._say_register(session, register)

    def _deliver(self, queue: str, session: Session, now: float) -> None:
        lease = self.ledger.lend(queue, session, now)
        item = lease.item
        message = Deliver(queue=queue, id=item.id, lease=lease.number, delivery=item.deliveries)
        self._say(session.peer, message, item.place)

    def _tell_stats(self, session: Session, register: str, wall: float) -> None:
        """Send the statistics of a queue if they are news to this watcher."""
        if not register.startswith(STATS_PREFIX):
            return
        stats = self.stats(register.removeprefix(STATS_PREFIX), wall)
        if are_news(stats, session.watches[register]):
            session.watches[register] = stats
            self._stats_version += 1
            value = protocol.encoder.encode(stats)
            self._say(session.peer, protocol.Register(name=register, version=self._stats_version, value=value))

    def _say_register(self, session: Session, name: str) -> None:
        register = self._register(name)
        self._say(session.peer, protocol.Register(name=name, version=register.version, value=register.value))

    def _say(self, peer: Peer | None, message: FromBroker, place: Place | None = None) -> None:
        if peer is not None:
            self.outbox.append(Outgoing(peer, message, place))

    def _register(self, name: str) -> Register:
        return self._registers.get(name, Register())
