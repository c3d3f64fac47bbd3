"""A TCP proxy between the services and their broker, with weather: late, slow, silent, repeated, reordered, damaged.

    service --DEALER--> proxy --> broker          one `_Link` per connection and direction

It knows ZMTP's frames (RFC 23), so that it can repeat, reorder and damage whole messages: what damages the framing
itself only breaks the connection, which `cut` does too. Commands of ZMTP (handshake, heartbeats) pass untouched.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field

GREETING = 64
MORE, LONG, COMMAND = 1, 2, 4
CHUNK = 1 << 16


@dataclass(kw_only=True)
class Weather:
    """What happens to messages now; `share` of the connections are in it."""

    share: float = 1.0
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    """0: no limit."""
    silent: bool = False
    """Nothing passes; the connections look alive."""
    damage: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    """Shares of the messages."""


@dataclass
class _Link:
    """One direction of one connection."""

    proxy: "Proxy"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    luck: float
    kept: list[bytes] = field(default_factory=list)
    """A message that the next one overtakes."""

    async def pump(self) -> None:
        """Forward until one side ends."""
        left = GREETING  # its first part has to be there before the other side sends the second
        while left:
            part = await self.reader.read(left)
            if not part:
                return
            self.writer.write(part)
            left -= len(part)
        while True:
            message, is_command = await self._message()
            weather = self.proxy.weather
            if self.luck < weather.share:
                await self._suffer(weather, message, is_command=is_command)
            else:
                self._send(b"".join(message))
            await self.writer.drain()

    async def _message(self) -> tuple[list[bytes], bool]:
        """The frames of one message, each with its header; whether it is a command."""
        frames = []
        while True:
            flags = (await self.reader.readexactly(1))[0]
            size = await self.reader.readexactly(8 if flags & LONG else 1)
            frames.append(bytes([flags]) + size + await self.reader.readexactly(int.from_bytes(size, "big")))
            if not flags & MORE:
                return frames, bool(flags & COMMAND)

    async def _suffer(self, weather: Weather, message: list[bytes], *, is_command: bool) -> None:
        await asyncio.sleep(weather.latency_s)
        if weather.bytes_per_s:
            await asyncio.sleep(sum(map(len, message)) / weather.bytes_per_s)
        if weather.silent:
            await self.proxy.talk.wait()
        dice, counts = self.proxy.dice, self.proxy.counts
        if is_command:
            self._send(b"".join(message))
            return
        if dice.random() < weather.damage:
            message = damaged(message, dice)
            counts["damaged"] += 1
        if dice.random() < weather.repeat:
            self._send(b"".join(message))
            counts["repeated"] += 1
        if dice.random() < weather.reorder and not self.kept:
            self.kept.append(b"".join(message))
            counts["reordered"] += 1
            return
        self._send(b"".join(message))

    def _send(self, data: bytes) -> None:
        self.writer.write(data + b"".join(self.kept))
        self.kept.clear()


class Proxy:
    """Listens as long as the block lasts."""

    def __init__(self, *, port: int, broker: int, seed: int) -> None:
        self.talk = asyncio.Event()
        """Not set in weather that is silent."""
        self.change(Weather())
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        """Messages damaged, repeated, reordered; connections cut."""
        self._port, self._broker = port, broker
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut(1.0)
        await asyncio.sleep(0.1)

    def change(self, weather: Weather) -> None:
        """From now on."""
        self.weather = weather
        (self.talk.clear if weather.silent else self.talk.set)()

    def cut(self, share: float) -> None:
        """Reset that share of the connections, without a goodbye."""
        for writer in list(self._writers):
            if self.dice.random() < share:
                handle = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                self.counts["cut"] += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._broker)
        except OSError:
            writer.transport.abort()
            return
        luck, both = self.dice.random(), {writer, far_writer}
        self._writers |= both
        links = [_Link(self, reader, far_writer, luck), _Link(self, far_reader, writer, luck)]
        pumps = [asyncio.create_task(link.pump()) for link in links]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in both:
            each.transport.abort()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._writers -= both


def damaged(frames: list[bytes], dice: random.Random) -> list[bytes]:
    """The frames with one bit flipped in a content; their headers stay, so that the message arrives."""
    starts = [9 if frame[0] & LONG else 2 for frame in frames]
    places = [n for n, frame in enumerate(frames) if len(frame) > starts[n]]
    if not places:
        return frames
    place = dice.choice(places)
    data = bytearray(frames[place])
    data[dice.randrange(starts[place], len(data))] ^= 1 << dice.randrange(8)
    return [*frames[:place], bytes(data), *frames[place + 1 :]]
