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
from common.client import QueueClient, running
from services.broker.core import Core
from services.broker.journal import open_journal

HEARTBEAT_S, LEASE_S = 0.05, 10.0


class MemorySocket:
    """What the client needs of a DEALER."""

    def __init__(self, broker: "MemoryBroker", peer: bytes) -> None:
        self._broker = broker
        self._peer = peer
        self.inbound: asyncio.Queue[list[bytes]] = asyncio.Queue()

    def send_multipart(self, parts: Sequence[bytes]) -> None:
        """To the broker, which answers at once."""
        content = protocol.unsealed(parts)
        assert content is not None
        self._broker.receive(self._peer, content)

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
        client = QueueClient(name, socket, heartbeat_s=HEARTBEAT_S)  # type: ignore[arg-type]
        try:
            async with running(client):
                try:
                    yield client
                finally:
                    if dies:
                        del self._sockets[peer]
        finally:
            self._sockets.pop(peer, None)

    def receive(self, peer: bytes, parts: Sequence[bytes]) -> None:
        """One message, one turn; who is dead is not heard."""
        if peer in self._sockets:
            self._journal.begin()
            self.core.receive(peer, parts, now=self.now, wall=self.now)
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
        return [item.id for item in self.core.ledger.queue(queue).items.values()]

    def _open(self) -> None:
        self._journal = open_journal(self._folder, durability="process", segment_bytes=1 << 20)
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
            frames = self._journal.segments.read(place) if place is not None else []
            if peer in self._sockets:
                self._sockets[peer].inbound.put_nowait(protocol.sealed(message, frames))
