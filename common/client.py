"""The queue client: one ZeroMQ DEALER to the broker, leases kept alive, everything repeated after a loss.

    async with connect("tcp://127.0.0.1:5570", "reward-0") as client:
        inbox = client.take("groups", window=16)
        item = await inbox.get()
        await client.give(Item(queue="scored", id=item.id, frames=frames), settles=[item.lease])

There is one way to recover, whatever happened (broker restarted, connection broken, answer lost): say `Hello`; at
`Welcome` repeat the takes, the watches and every request that has no answer. The broker remembers the requests it has
done, so repeating is harmless.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import msgspec
import zmq
import zmq.asyncio

from common import protocol
from common.errors import RefusedError
from common.protocol import (
    Deliver,
    Done,
    FromBroker,
    Give,
    Hello,
    Offer,
    Ping,
    Pong,
    Refused,
    Register,
    Stranger,
    Take,
    ToBroker,
    Watch,
    Welcome,
    Write,
)

log = logging.getLogger(__name__)

SILENT_BEATS = 3
"""Heartbeats without a word of the broker, or without an answer to a request, before the client says Hello again."""


@dataclass(frozen=True, slots=True)
class Item:
    """What is given: an id, unique in its queue, and opaque frames."""

    queue: str
    id: str
    frames: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Delivery:
    """An item under a lease of this client."""

    queue: str
    id: str
    lease: int
    delivery: int
    frames: list[bytes]


@dataclass(slots=True)
class _Request:
    give: Give
    frames: list[bytes]
    answer: asyncio.Future[None]
    sent_at: float = 0.0


class Inbox:
    """Deliveries of one queue, in order."""

    def __init__(self, client: "QueueClient", queue: str) -> None:
        self._client = client
        self._queue = queue
        self._items: asyncio.Queue[Delivery] = asyncio.Queue()

    async def get(self) -> Delivery:
        """The next item; waits until one comes. Items whose lease was lost meanwhile are skipped."""
        while True:
            item = await self._items.get()
            if item.lease in self._client.held:
                return item

    def resize(self, window: int) -> None:
        """Hold at most `window` unsettled items from now on."""
        self._client._set_window(self._queue, window)

    def _put(self, item: Delivery) -> None:
        self._items.put_nowait(item)


class Watched:
    """The latest value of a register."""

    def __init__(self) -> None:
        self.latest: Register | None = None
        self._news = asyncio.Event()

    async def changed(self) -> Register:
        """The value, as soon as one came that was not returned before."""
        await self._news.wait()
        self._news.clear()
        assert self.latest is not None
        return self.latest

    def _put(self, register: Register) -> None:
        if self.latest != register:
            self.latest = register
            self._news.set()


@dataclass
class QueueClient:
    """See the module; made by `connect`."""

    name: str
    heartbeat_s: float
    _socket: zmq.asyncio.Socket
    held: set[int] = field(default_factory=set)
    """Leases this client works on; pings keep them alive."""
    _incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    _windows: dict[str, int] = field(default_factory=dict)
    _inboxes: dict[str, Inbox] = field(default_factory=dict)
    _watched: dict[str, Watched] = field(default_factory=dict)
    _requests: dict[int, _Request] = field(default_factory=dict)
    _next_request: int = 1
    _heard_at: float = field(default_factory=time.monotonic)
    _welcome: bool = False

    def take(self, queue: str, *, window: int) -> Inbox:
        """Ask for the items of a queue, at most `window` unsettled at a time."""
        inbox = self._inboxes[queue] = Inbox(self, queue)
        self._set_window(queue, window)
        return inbox

    def watch(self, register: str) -> Watched:
        """Follow a register."""
        if register not in self._watched:
            self._watched[register] = Watched()
            self._say(Watch(register=register))
        return self._watched[register]

    async def give(
        self, *items: Item, settles: Sequence[int] = (), reason: str = "done", writes: Sequence[Write] = ()
    ) -> None:
        """One transaction; returns when it is on the broker's disk. Raises `RefusedError` if nothing was done."""
        number, self._next_request = self._next_request, self._next_request + 1
        acked = min(self._requests, default=number) - 1
        offers = [Offer(queue=item.queue, id=item.id, frames=len(item.frames)) for item in items]
        give = Give(
            request=number, acked=acked, offers=offers, settles=list(settles), reason=reason, writes=list(writes)
        )
        frames = [frame for item in items for frame in item.frames]
        request = self._requests[number] = _Request(give, frames, asyncio.get_running_loop().create_future())
        self._send_request(request)
        try:
            await request.answer
        finally:
            self._requests.pop(number, None)

    async def settle(self, leases: Sequence[int], *, reason: str = "done") -> None:
        """Finish items without giving others."""
        await self.give(settles=leases, reason=reason)

    def abandon(self, lease: int) -> None:
        """Stop keeping a lease alive: the item returns to its queue, and to the dead letters after too many times."""
        self.held.discard(lease)

    def _set_window(self, queue: str, window: int) -> None:
        self._windows[queue] = window
        self._say(Take(queue=queue, window=window))

    async def _receive(self) -> None:
        """Broker -> inboxes, watches and answers, for ever. Waits for the broker."""
        while True:
            parts = await self._socket.recv_multipart()
            self._heard_at = time.monotonic()
            try:
                message = protocol.from_broker_decoder.decode(parts[0])
            except msgspec.MsgspecError as error:
                log.warning("malformed message of the broker ignored", extra={"cause": str(error)})
                continue
            self._handle(message, parts[1:])

    def _handle(self, message: FromBroker, frames: list[bytes]) -> None:
        if isinstance(message, Deliver):
            self._delivered(message, frames)
        elif isinstance(message, Done | Refused):
            self._answered(message)
        elif isinstance(message, Register) and message.name in self._watched:
            self._watched[message.name]._put(message)
        elif isinstance(message, Pong):
            self.held.difference_update(message.lost)
        elif isinstance(message, Welcome):
            self._repeat()
        elif isinstance(message, Stranger) and self._welcome:
            self._welcome = False
            self._hello()

    def _delivered(self, message: Deliver, frames: list[bytes]) -> None:
        if message.lease not in self.held and message.queue in self._inboxes:
            self.held.add(message.lease)
            item = Delivery(message.queue, message.id, message.lease, message.delivery, frames)
            self._inboxes[message.queue]._put(item)

    def _answered(self, message: Done | Refused) -> None:
        request = self._requests.get(message.request)
        if request is None or request.answer.done():
            return
        if isinstance(message, Done):
            self.held.difference_update(request.give.settles)
            request.answer.set_result(None)
        else:
            self.held.difference_update(message.leases)
            request.answer.set_exception(RefusedError(message.reason))

    async def _beat(self) -> None:
        """Heartbeats, for ever; recovers when the broker was silent or an answer is missing."""
        while True:
            await asyncio.sleep(self.heartbeat_s)
            limit = time.monotonic() - SILENT_BEATS * self.heartbeat_s
            unanswered = any(request.sent_at < limit for request in self._requests.values())
            if not self._welcome or self._heard_at < limit or unanswered:
                self._hello()
            else:
                self._say(Ping(held=sorted(self.held)))

    def _hello(self) -> None:
        self._say(Hello(name=self.name, incarnation=self._incarnation))

    def _repeat(self) -> None:
        """The session is open: state again what this client wants."""
        self._welcome = True
        self._say(Ping(held=sorted(self.held)))
        for queue, window in self._windows.items():
            self._say(Take(queue=queue, window=window))
        for register in self._watched:
            self._say(Watch(register=register))
        for request in self._requests.values():
            self._send_request(request)

    def _send_request(self, request: _Request) -> None:
        request.sent_at = time.monotonic()
        self._say(request.give, request.frames)

    def _say(self, message: ToBroker, frames: Sequence[bytes] = ()) -> None:
        """Send if the session is open; otherwise `_repeat` will. The socket has no limit of its own: requests wait
        for their answers, so what is queued is bounded by the client's work in progress."""
        if self._welcome or isinstance(message, Hello):
            self._socket.send_multipart([protocol.encoder.encode(message), *frames])


@contextlib.asynccontextmanager
async def connect(address: str, name: str, *, heartbeat_s: float = 1.0) -> AsyncIterator[QueueClient]:
    """A client that lives as long as the block; the broker may start later, restart or move to another process.

    At the end of the block what the client holds goes back to its queues.
    """
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    for option, value in _OPTIONS.items():
        socket.setsockopt(option, value)
    socket.connect(address)
    client = QueueClient(name, heartbeat_s, socket)
    client._hello()
    try:
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(client._receive()), tasks.create_task(client._beat())]
            try:
                yield client
            finally:
                for loop in loops:
                    loop.cancel()
                client._say(protocol.Bye())
    finally:
        socket.close(linger=500)
        context.term()


_OPTIONS = {
    zmq.SNDHWM: 0,
    zmq.RCVHWM: 0,
    zmq.HEARTBEAT_IVL: 2_000,
    zmq.HEARTBEAT_TIMEOUT: 6_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 1_000,
}
"""Credits bound what is queued, so no high-water mark may drop or block; heartbeats find a half-open connection."""
