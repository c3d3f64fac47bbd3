"""The loop: poll, drain what has come, one transaction, commit, reply.

    socket -> core.receive* -> core.tick -> core.deliver -> journal.commit -> socket

Waits for messages of clients, at most `TICK_S`; nothing it does waits for a client. Group commit comes by itself: the
more messages wait, the more share one commit. A turn that finds no room on the disk never happened: everything is read
from disk anew, and the clients say again what they want.
"""

import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable

import zmq
from prometheus_client import Counter, Histogram

from common import protocol
from common.gate import Gate, origin
from common.history import History
from common.keys import server_keys
from common.life import Process, in_thread
from common.refusals import Refusals
from common.stages import Stage
from services.broker import measures
from services.broker.clock import ListeningClock
from services.broker.config import BrokerConfig
from services.broker.core import Core
from services.broker.journal import Journal, has_no_room, open_journal
from services.broker.listening import bind
from services.broker.room import Room

log = logging.getLogger(__name__)

TICK_S = 0.2
DRAIN_LIMIT = 512
"""Messages in one transaction at most."""

UNREACHABLE = Counter("dapo_broker_unreachable_total", "Messages that could not be sent to their client.")
DEAD = Counter("dapo_broker_dead_letters_total", "Items given up after too many deliveries.", ["queue"])
COMMIT = Histogram("dapo_broker_commit_seconds", "Time to commit one turn of the loop.")


async def run(process: Process[BrokerConfig]) -> None:
    """Serve until cancelled."""
    await in_thread(serve, process)


def serve(process: Process[BrokerConfig], stop: threading.Event) -> None:
    """Open the socket and the journal, then turn until `stop` is set."""
    config, clock = process.config, ListeningClock()
    process.run.path.mkdir(parents=True, exist_ok=True)
    keys = server_keys(process.run.keys, "broker")
    refused = Refusals()
    with (
        zmq.Context() as context,
        context.socket(zmq.ROUTER) as socket,
        Gate(context, socket, keys, refused) as gate,
    ):
        bind(socket, config.bind or process.run.broker, config, has_keys=keys is not None)
        journal = open_journal(process.run.path, durability=config.durability, segment_bytes=config.segment_bytes)

        def load() -> Core:
            return Core(
                journal,
                incarnation=uuid.uuid4().hex,
                heartbeat_s=process.run.heartbeat_s,
                lease_s=process.run.lease_s,
                max_deliveries=lambda queue: None if queue in config.endless else config.max_deliveries,
                now=clock.now,
                refused=refused,
            )

        room = Room(process.run.path, min_free_mb=config.min_free_mb)
        broker = Broker(
            socket=socket, gate=gate, journal=journal, load=load, history=process.history, clock=clock,
            room=room, remember_ids=config.remember_ids,
        )  # fmt: skip
        log.info("broker is up", extra={"address": config.bind or process.run.broker})
        while not stop.is_set():
            broker.turn()
            process.health.beat("broker")
        journal.close()


class Broker:
    """Joins the core to a socket and a disk."""

    def __init__(
        self, *, socket: "zmq.Socket[bytes]", gate: Gate, journal: Journal, load: Callable[[], Core],
        history: History, clock: ListeningClock, room: Room, remember_ids: int,
    ) -> None:  # fmt: skip
        """`load` makes a core of what the journal has committed."""
        self._socket = socket
        self._gate = gate
        self._poller = zmq.Poller()
        for each in (socket, *gate.sockets):
            self._poller.register(each, zmq.POLLIN)
        self._journal = journal
        self._load = load
        self._core = load()
        self._history = history
        self._clock = clock
        self._room = room
        self._remember_ids = remember_ids
        self._stage = Stage("broker")
        self._next_tick = 0.0

    def turn(self) -> None:
        """One turn of the loop."""
        with self._stage.starved():
            ready = self._poller.poll(int(TICK_S * 1000))
        self._gate.serve()
        is_message = (self._socket, zmq.POLLIN) in ready
        now, wall = self._clock.advance(), time.time()
        is_tick = now >= self._next_tick
        if not is_message and not is_tick:
            return
        with self._stage.busy():
            try:
                self._transact(now, wall, is_tick=is_tick)
            except (OSError, sqlite3.OperationalError) as error:
                if not has_no_room(error):
                    raise
                self._forget_turn(error)

    def _transact(self, now: float, wall: float, *, is_tick: bool) -> None:
        """Everything that came, in one commit; then the answers."""
        self._journal.begin()
        self._drain(now, wall)
        if is_tick:
            self._tick(now, wall)
        self._core.deliver(now, wall)
        with COMMIT.time():
            self._journal.commit()
        self._report_dead()
        self._send_all()

    def _tick(self, now: float, wall: float) -> None:
        self._core.is_full = self._room.is_short()
        self._core.tick(now)
        self._journal.tidy(last_seq=self._core.ledger.last_seq, remember=self._remember_ids)
        measures.show(self._core, now, wall)
        self._next_tick = now + TICK_S

    def _forget_turn(self, error: Exception) -> None:
        """The disk could not take this turn: go back to what was committed. Clients become strangers and say Hello."""
        self._room.show(short=True)
        log.error("disk full: nothing of this turn was done", extra={"cause": str(error)})
        self._journal.rollback()
        time.sleep(TICK_S)
        self._core = self._load()

    def _drain(self, now: float, wall: float) -> None:
        """Apply the messages that wait."""
        for _ in range(DRAIN_LIMIT):
            try:
                peer, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            content, source = protocol.unsealed([frame.bytes for frame in frames]), origin((frames or [peer])[0])
            if content is None:
                self._core.receive_damaged(peer.bytes, source)
            else:
                self._core.receive(peer.bytes, content, now=now, wall=wall, origin=source)

    def _report_dead(self) -> None:
        buried = self._core.ledger.buried
        for event, item in buried:
            self._history.append(event, queue=item.queue, id=item.id)
            DEAD.labels(item.queue).inc(event == "dead")
            log.error(
                "dead letter", extra={"queue": item.queue, "item": item.id, "holders": item.holders, "now": event}
            )
        buried.clear()

    def _send_all(self) -> None:
        """Send without waiting. A client that is gone or full becomes a stranger: it recovers by saying Hello."""
        for peer, message, place in self._core.outbox:
            frames = self._journal.segments.read(place) if place else []
            try:
                self._socket.send_multipart([peer, *protocol.sealed(message, frames)], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                self._core.disconnect(peer)
                UNREACHABLE.inc()
                log.info("client is unreachable", extra={"peer": peer.hex(), "cause": str(error)})
        self._core.outbox.clear()
