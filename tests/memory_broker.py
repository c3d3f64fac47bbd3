"""The real broker core and the real queue client in one process: no socket, no second process, a clock moved by hand.

    async with MemoryBroker(tmp_path) as broker, broker.client("filter-0") as client: ...

Apart from tests/fakes.py, which needs torch. Not covered: what ZeroMQ may do to a connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from common import protocol
from common.client import QueueClient
from services.broker.core import Core
from services.broker.journal import Journal

HEARTBEAT_S, LEASE_S = 0.05, 10.0


class MemorySocket:
    """What the client needs of a DEALER."""

    def __init__(self, broker: "MemoryBroker", peer: bytes) -> None:
        self._broker = broker
        self._peer = peer
        self.inbound: asyncio.Queue[list[bytes]] = asyncio.Queue()

    def send_multipart(self, parts: Sequence[bytes]) -> None:
        """To the broker, which answers at once."""
        self._broker.receive(self._peer, parts)

    async def recv_multipart(self) -> list[bytes]:
        """The next message of the broker."""
        return await self.inbound.get()


class MemoryBroker:
    """A turn of the core for every message that comes."""

    def __init__(self, folder: Path, *, max_deliveries: int = 10) -> None:
        self._folder = folder
        self._max_deliveries = max_deliveries
        self._sockets: dict[bytes, MemorySocket] = {}
        self._num_peers = 0
        self.now = 100.0
        self._open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._journal.close()

    @contextlib.asynccontextmanager
    async def client(self, name: str, *, dies: bool = False) -> AsyncIterator[QueueClient]:
        """As `common.client.connect`; one that `dies` ends without saying so."""
        self._num_peers += 1
        peer = f"{name}:{self._num_peers}".encode()
        socket = self._sockets[peer] = MemorySocket(self, peer)
        client = QueueClient(name, HEARTBEAT_S, socket)  # type: ignore[arg-type]
        client._hello()
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(client._receive()), tasks.create_task(client._beat())]
            try:
                yield client
            finally:
                for loop in loops:
                    loop.cancel()
                if not dies:
                    client._say(protocol.Bye())
                del self._sockets[peer]

    def receive(self, peer: bytes, parts: Sequence[bytes]) -> None:
        """One message, one turn."""
        self._journal.begin()
        message = protocol.to_broker_decoder.decode(parts[0])
        self.core.handle(peer, message, parts[1:], now=self.now, wall=self.now)
        self._finish()

    def advance(self, seconds: float) -> None:
        """Let time pass: leases that nobody kept alive meanwhile end."""
        self.now += seconds
        self._journal.begin()
        self._finish()

    def restart(self) -> None:
        """Kill the broker between two turns and start it on what is on disk."""
        self._journal.close()
        self._open()

    def register(self, name: str) -> tuple[int, bytes]:
        """Version and value."""
        register = self.core._register(name)
        return register.version, register.value

    def ids(self, queue: str) -> list[str]:
        """Unsettled items, oldest first."""
        return [item.id for item in self.core.queues[queue].items.values()] if queue in self.core.queues else []

    def _open(self) -> None:
        self._journal = Journal(self._folder, durability="process", segment_bytes=1 << 20)
        self.core = Core(
            self._journal, incarnation="memory", heartbeat_s=HEARTBEAT_S, lease_s=LEASE_S,
            max_deliveries=lambda _: self._max_deliveries, now=self.now,
        )  # fmt: skip

    def _finish(self) -> None:
        self.core.tick(self.now)
        self.core.deliver(self.now, self.now)
        self._journal.commit()
        outbox, self.core.outbox = self.core.outbox, []
        for peer, message, place in outbox:
            frames = self._journal.read_frames(place) if place is not None else []
            if peer in self._sockets:
                self._sockets[peer].inbound.put_nowait([protocol.encoder.encode(message), *frames])
