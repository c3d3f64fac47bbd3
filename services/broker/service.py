"""The loop: poll, drain what has come, one transaction, commit, reply.

    socket -> core.receive* -> core.tick -> core.deliver -> journal.commit -> socket

Waits for messages of clients, at most `TICK_S`; nothing it does waits for a client. Group commit comes by itself: the
more messages wait, the more share one commit.
"""

import asyncio
import logging
import shutil
import threading
import time
import uuid
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import zmq
from prometheus_client import Counter, Gauge, Histogram

from common import protocol
from common.errors import UserError
from common.history import History
from common.life import Process
from common.stages import Stage
from services.broker.clock import ListeningClock
from services.broker.config import BrokerConfig
from services.broker.core import Core
from services.broker.journal import Journal, open_journal

log = logging.getLogger(__name__)

TICK_S = 0.2
DRAIN_LIMIT = 512
"""Messages in one transaction at most."""

ITEMS = Gauge("dapo_queue_items", "Unsettled items of a queue.", ["queue", "state"])
OLDEST = Gauge("dapo_queue_oldest_seconds", "Age of the oldest unsettled item of a queue.", ["queue"])
GIVEN = Counter("dapo_broker_given_total", "Items given.")
SETTLED = Counter("dapo_broker_settled_total", "Items settled.")
EXPIRED = Counter("dapo_broker_leases_expired_total", "Leases that ended because their holder fell silent.")
DEAD = Counter("dapo_broker_dead_letters_total", "Items given up after too many deliveries.", ["queue"])
REFUSED = Counter("dapo_broker_refused_total", "Messages refused.", ["reason"])
UNREACHABLE = Counter("dapo_broker_unreachable_total", "Messages that could not be sent to their client.")
DISK_FREE = Gauge("dapo_disk_free_bytes", "Bytes left to this user on the disk of the run folder.")
DISK_SIZE = Gauge("dapo_disk_size_bytes", "Size of the disk of the run folder.")
COMMIT = Histogram("dapo_broker_commit_seconds", "Time to commit one turn of the loop.")


async def run(process: Process[BrokerConfig]) -> None:
    """Serve until cancelled."""
    stop = threading.Event()
    loop = asyncio.create_task(asyncio.to_thread(serve, process, stop))
    try:
        await asyncio.shield(loop)
    except asyncio.CancelledError:
        stop.set()
        await loop
        raise


def serve(process: Process[BrokerConfig], stop: threading.Event) -> None:
    """Open the socket and the journal, then turn until `stop` is set."""
    config, clock = process.config, ListeningClock()
    process.run.path.mkdir(parents=True, exist_ok=True)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        _bind(socket, config.bind or process.run.broker, config)
        journal = open_journal(process.run.path, durability=config.durability, segment_bytes=config.segment_bytes)
        core = Core(
            journal,
            incarnation=uuid.uuid4().hex,
            heartbeat_s=process.run.heartbeat_s,
            lease_s=process.run.lease_s,
            max_deliveries=lambda queue: None if queue in config.endless else config.max_deliveries,
            now=clock.now,
        )
        broker = Broker(socket=socket, journal=journal, core=core, history=process.history, clock=clock)
        _show_disk(process.run.path)
        log.info("broker is up", extra={"address": config.bind or process.run.broker})
        while not stop.is_set():
            broker.turn()
            process.health.beat("broker")
        journal.close()


class Broker:
    """Joins the core to a socket and a disk."""

    def __init__(
        self, *, socket: "zmq.Socket[bytes]", journal: Journal, core: Core, history: History, clock: ListeningClock
    ) -> None:
        self._socket = socket
        self._journal = journal
        self._core = core
        self._history = history
        self._clock = clock
        self._stage = Stage("broker")
        self._next_tick = 0.0

    def turn(self) -> None:
        """One turn of the loop."""
        with self._stage.starved():
            is_message = self._socket.poll(int(TICK_S * 1000))
        now, wall = self._clock.advance(), time.time()
        is_tick = now >= self._next_tick
        if not is_message and not is_tick:
            return
        with self._stage.busy():
            self._journal.begin()
            self._drain(now, wall)
            if is_tick:
                self._core.tick(now)
                self._measure(wall)
                self._next_tick = now + TICK_S
            self._core.deliver(now, wall)
            with COMMIT.time():
                self._journal.commit()
            self._report_dead()
            self._send_all()

    def _drain(self, now: float, wall: float) -> None:
        """Apply the messages that wait."""
        for _ in range(DRAIN_LIMIT):
            try:
                peer, *parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._core.receive(peer, parts, now=now, wall=wall)

    def _report_dead(self) -> None:
        buried = self._core.ledger.buried
        for item in buried:
            self._history.append("dead", queue=item.queue, id=item.id)
            DEAD.labels(item.queue).inc()
            log.error("dead letter", extra={"queue": item.queue, "item": item.id, "holders": item.holders})
        buried.clear()

    def _send_all(self) -> None:
        """Send without waiting. A client that is gone or full becomes a stranger: it recovers by saying Hello."""
        for peer, message, place in self._core.outbox:
            frames = self._journal.segments.read(place) if place else []
            try:
                self._socket.send_multipart([peer, protocol.encoder.encode(message), *frames], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                self._core.disconnect(peer)
                UNREACHABLE.inc()
                log.info("client is unreachable", extra={"peer": peer.hex(), "cause": str(error)})
        self._core.outbox.clear()

    def _measure(self, wall: float) -> None:
        core, ledger = self._core, self._core.ledger
        for name, queue in ledger.queues.items():
            ITEMS.labels(name, "ready").set(queue.num_ready)
            ITEMS.labels(name, "leased").set(queue.num_leased)
            ITEMS.labels(name, "dead").set(len(queue.dead))
            OLDEST.labels(name).set(core.stats(name, wall).oldest_s)
        GIVEN.inc(ledger.num_given)
        SETTLED.inc(ledger.num_settled)
        EXPIRED.inc(ledger.num_expired)
        ledger.num_given = ledger.num_settled = ledger.num_expired = 0
        for reason, count in core.refused.items():
            REFUSED.labels(reason).inc(count)
            log.warning("messages refused", extra={"reason": reason, "count": count})
        core.refused.clear()


def _show_disk(folder: Path) -> None:
    """The disk's numbers are read when somebody asks for the metrics."""
    DISK_FREE.set_function(lambda: shutil.disk_usage(folder).free)
    DISK_SIZE.set_function(lambda: shutil.disk_usage(folder).total)


def _bind(socket: "zmq.Socket[bytes]", address: str, config: BrokerConfig) -> None:
    """Listen, on loopback unless the configuration allows more."""
    if not config.allow_remote and not _is_local(address):
        raise UserError(
            f"broker address {address} is reachable from other machines: use tcp://127.0.0.1:PORT, "
            "or set [broker] allow_remote = true on a network that no stranger can reach"
        )
    socket.setsockopt(zmq.MAXMSGSIZE, config.max_message_bytes)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an unreachable client is an error, not silence
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a client with a fixed routing id may reconnect at once
    socket.setsockopt(zmq.LINGER, 200)
    socket.setsockopt(zmq.SNDHWM, 100_000)
    socket.setsockopt(zmq.RCVHWM, 1_000)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise UserError(
            f"broker address {address} cannot be opened ({error.strerror}): if another run uses it, "
            "set [run] broker to a free port, tcp://127.0.0.1:PORT"
        ) from error


def _is_local(address: str) -> bool:
    """Whether only this machine reaches the address; other host names than localhost are not looked up."""
    if address.startswith(("ipc://", "inproc://", "tcp://localhost:")):
        return True
    try:
        return ip_address(urlsplit(address).hostname or "").is_loopback
    except ValueError:
        return False
