"""The queue client: one ZeroMQ DEALER to the broker, leases kept alive, everything repeated after a loss.

    async with connect("tcp://127.0.0.1:5570", "reward-0") as client:
        inbox = client.take("groups", window=16)
        item = await inbox.get()
        await client.give(Item(queue="scored", id=item.id, frames=frames), settles=[item.lease])

There is one way to recover, whatever happened (broker restarted, connection broken, message lost): say `Hello` and
nothing else; at `Welcome` name the leases held, repeat the takes, the watches and every request that has no answer. The
broker remembers the requests it has done, so repeating is harmless.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import msgspec
import zmq
import zmq.asyncio

from common import protocol
from common.config import RunConfig
from common.errors import RefusedError, UserError
from common.gate import secure, tell_failures
from common.inbox import Delivery, Inbox, Item, Watched
from common.keys import ClientKeys, client_keys, role_of
from common.protocol import (
    Bye,
    Deliver,
    Done,
    FromBroker,
    Give,
    Hello,
    Letter,
    Offer,
    Ping,
    Pong,
    Refused,
    Register,
    Stranger,
    Take,
    ToBroker,
    Unwelcome,
    Watch,
    Welcome,
    Write,
)

__all__ = ["Delivery", "Inbox", "Item", "QueueClient", "Watched", "connect", "connect_to_broker"]

log = logging.getLogger(__name__)

SILENT_BEATS = 3
"""Heartbeats without a word of the broker before the client says Hello again."""
LINGER_MS = 500
"""How long leaving may take. Nothing depends on it: what matters was answered, and a lost Bye ends with the lease."""
OPTIONS = {
    zmq.SNDHWM: 0,
    zmq.RCVHWM: 0,
    zmq.MAXMSGSIZE: 1 << 30,
    zmq.HEARTBEAT_IVL: 2_000,
    zmq.HEARTBEAT_TIMEOUT: 6_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 1_000,
}
"""Credits bound what is queued, so no high-water mark may drop or block; heartbeats find a half-open connection."""


@dataclass(slots=True)
class _Request:
    give: Give
    frames: list[bytes]
    answer: asyncio.Future[None]
    num_pings: int = 0
    """Pings sent before it: the broker answers in order, so a later pong without an answer means that one was lost."""
    is_postponed: bool = False
    """The broker had no room on its disk; said again with the next ping."""


class QueueClient:
    """See the module; made by `connect`."""

    def __init__(self, name: str, socket: zmq.asyncio.Socket, *, heartbeat_s: float) -> None:
        """`heartbeat_s` is the pace until the broker's `Welcome` states another."""
        self.name = name
        self.held: set[int] = set()
        """Leases this client works on; pings keep them alive."""
        self._socket = socket
        self._heartbeat_s = heartbeat_s
        self._incarnation = uuid.uuid4().hex
        self._windows: dict[str, int] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._watched: dict[str, Watched] = {}
        self._requests: dict[int, _Request] = {}
        """Open requests, in order."""
        self._last_request = 0
        self._num_pings, self._num_pongs = 0, 0
        """Since the last `Welcome`."""
        self._heard_at = time.monotonic()
        self._is_welcome = False

    def take(self, queue: str, *, window: int) -> Inbox:
        """Ask for the items of a queue, at most `window` unsettled at a time."""
        if queue not in self._inboxes:
            self._inboxes[queue] = Inbox(self.held, lambda size: self._set_window(queue, size))
        self._set_window(queue, window)
        return self._inboxes[queue]

    def watch(self, register: str) -> Watched:
        """Follow a register."""
        if register not in self._watched:
            self._watched[register] = Watched()
            self._say(Watch(register=register))
        return self._watched[register]

    async def give(
        self, *items: Item, settles: Sequence[int] = (), reason: str = "done", writes: Sequence[Write] = (),
        letters: Sequence[Letter] = (),
    ) -> None:  # fmt: skip
        """One transaction; returns when it is on the broker's disk. Raises `RefusedError` if nothing was done.

        While the broker's disk is full this waits: the stage is blocked, and nothing is lost.
        """
        self._last_request = number = self._last_request + 1
        give = Give(
            request=number,
            acked=min(self._requests, default=number) - 1,
            offers=[Offer(queue=item.queue, id=item.id, frames=len(item.frames)) for item in items],
            settles=list(settles),
            reason=reason,
            writes=list(writes),
            letters=list(letters),
        )
        frames = [frame for item in items for frame in item.frames]
        request = self._requests[number] = _Request(give, frames, asyncio.get_running_loop().create_future())
        self._send_request(request)
        try:
            await request.answer
        finally:
            del self._requests[number]

    async def settle(self, leases: Sequence[int], *, reason: str = "done") -> None:
        """Finish items without giving others."""
        await self.give(settles=leases, reason=reason)

    def abandon(self, lease: int) -> None:
        """Stop keeping a lease alive: the item returns to its queue, and to the dead letters after too many times."""
        self.held.discard(lease)

    def leave(self) -> None:
        """Hand back at once what is held; the client is of no use afterwards."""
        self._say(Bye())

    async def receive(self) -> None:
        """Broker -> inboxes, watches and answers, for ever. Waits for the broker."""
        while True:
            parts = protocol.unsealed(await self._socket.recv_multipart())
            self._heard_at = time.monotonic()
            if not parts:
                log.warning("damaged message of the broker: everything is said again")
                self._hello()
                continue
            try:
                message = protocol.from_broker_decoder.decode(parts[0])
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                log.warning("malformed message of the broker ignored", extra={"cause": str(error)})
                continue
            self._handle(message, parts[1:])

    async def beat(self) -> None:
        """Heartbeats, for ever; recovers when the broker is silent or an answer is missing."""
        self._hello()
        while True:
            await asyncio.sleep(self._heartbeat_s)
            is_silent = time.monotonic() - self._heard_at > SILENT_BEATS * self._heartbeat_s
            is_answer_lost = any(request.num_pings < self._num_pongs for request in self._requests.values())
            if is_silent or is_answer_lost or not self._is_welcome:
                self._hello()
            else:
                self._ping()
                for request in self._requests.values():
                    if request.is_postponed:
                        self._send_request(request)

    def _handle(self, message: FromBroker, frames: list[bytes]) -> None:
        if isinstance(message, Deliver):
            self._delivered(message, frames)
        elif isinstance(message, Done | Refused):
            self._answered(message)
        elif isinstance(message, Register):
            if message.name in self._watched:
                self._watched[message.name].put(message)
        elif isinstance(message, Pong):
            self._num_pongs += 1
            self.held.difference_update(message.lost)
        else:
            self._session_changed(message)

    def _session_changed(self, message: Welcome | Stranger | Unwelcome) -> None:
        if isinstance(message, Unwelcome):
            raise UserError(f"the broker refuses {self.name}: {message.reason}")
        if isinstance(message, Stranger) and self._is_welcome:
            self._hello()
        elif isinstance(message, Welcome) and not self._is_welcome:
            self._heartbeat_s = message.heartbeat_s
            self._repeat()

    def _delivered(self, message: Deliver, frames: list[bytes]) -> None:
        if message.lease not in self.held and message.queue in self._inboxes:
            self.held.add(message.lease)
            item = Delivery(message.queue, message.id, message.lease, message.delivery, frames)
            self._inboxes[message.queue].put(item)

    def _answered(self, message: Done | Refused) -> None:
        request = self._requests.get(message.request)
        if request is None or request.answer.done():
            return
        if isinstance(message, Done):
            self.held.difference_update(request.give.settles)
            request.answer.set_result(None)
        elif message.reason == protocol.DISK_FULL:
            request.is_postponed = True
            log.warning("the broker's disk is full: waiting", extra={"request": message.request})
        else:
            self.held.difference_update(message.leases)
            request.answer.set_exception(RefusedError(message.reason))

    def _hello(self) -> None:
        """Nothing else is said until the broker answers, so that it knows what may be on its way: nothing."""
        self._is_welcome = False
        self._send(Hello(name=self.name, incarnation=self._incarnation))

    def _repeat(self) -> None:
        """The session is open: state what is held, then what is wanted."""
        self._is_welcome = True
        self._num_pings, self._num_pongs = 0, 0
        self._ping()
        for queue, window in self._windows.items():
            self._say(Take(queue=queue, window=window))
        for register in self._watched:
            self._say(Watch(register=register))
        for request in self._requests.values():
            self._send_request(request)

    def _set_window(self, queue: str, window: int) -> None:
        self._windows[queue] = window
        self._say(Take(queue=queue, window=window))

    def _ping(self) -> None:
        self._num_pings += 1
        self._say(Ping(held=sorted(self.held)))

    def _send_request(self, request: _Request) -> None:
        request.num_pings, request.is_postponed = self._num_pings, False
        self._say(request.give, request.frames)

    def _say(self, message: ToBroker, frames: Sequence[bytes] = ()) -> None:
        """Send if the session is open; otherwise `_repeat` will."""
        if self._is_welcome:
            self._send(message, frames)

    def _send(self, message: ToBroker, frames: Sequence[bytes] = ()) -> None:
        self._socket.send_multipart(protocol.sealed(message, frames))


@contextlib.asynccontextmanager
async def running(client: QueueClient) -> AsyncIterator[QueueClient]:
    """Run the loops of a client for the length of the block; then what it holds goes back to its queues."""
    async with asyncio.TaskGroup() as tasks:
        loops = [tasks.create_task(client.receive()), tasks.create_task(client.beat())]
        try:
            yield client
        finally:
            for loop in loops:
                loop.cancel()
            client.leave()


@contextlib.asynccontextmanager
async def connect(
    address: str, name: str, *, heartbeat_s: float = 1.0, keys: ClientKeys | None = None
) -> AsyncIterator[QueueClient]:
    """A client that lives as long as the block; the broker may start later, restart or move to another process."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    try:
        for option, value in OPTIONS.items():
            socket.setsockopt(option, value)
        secure(socket, keys)
        async with (
            tell_failures(socket, address),
            running(QueueClient(name, socket, heartbeat_s=heartbeat_s)) as client,
        ):
            socket.connect(address)
            yield client
    finally:
        socket.close(linger=LINGER_MS)
        context.term()


def connect_to_broker(run: RunConfig, name: str) -> contextlib.AbstractAsyncContextManager[QueueClient]:
    """A client of the run's broker, with the key of its role where the run has keys."""
    keys = client_keys(run.keys, role_of(name))
    return connect(run.broker, name, heartbeat_s=run.heartbeat_s, keys=keys)
