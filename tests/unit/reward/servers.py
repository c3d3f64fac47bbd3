"""A server on this machine that replies as it is told, for the verifiers behind an address."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any


class FakeServer:
    """Remembers what it was asked; `reply(number, body)` gives (status, text), or None to stay silent."""

    def __init__(self, reply: Callable[[int, Any], tuple[int, str] | None]) -> None:
        self._reply = reply
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self.pause_s = 0.0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of any number of requests."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.paths.append(head[0].split()[1])
                self.headers.append(headers)
                self.bodies.append(json.loads(body))
                await self._answer(writer, len(self.bodies))
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, number: int) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(self.pause_s)
        self._at_once -= 1
        reply = self._reply(number, self.bodies[number - 1])
        if reply is None:
            await asyncio.sleep(3600)
            return
        status, text = reply
        data = text.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nlocation: /elsewhere\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
        )
        await writer.drain()


@contextlib.asynccontextmanager
async def fake_server(reply: Callable[[int, Any], tuple[int, str] | None]) -> AsyncIterator[FakeServer]:
    """A server for the length of the block."""
    fake = FakeServer(reply)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await fake.serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def completion(content: Any) -> tuple[int, str]:
    """What an OpenAI-compatible API replies."""
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]})
