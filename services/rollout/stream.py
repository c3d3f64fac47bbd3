"""Versions from the weight server, chunk by chunk, on credit, resumed where they broke off.

    ask for CREDIT chunks -> one comes, one more is asked for -> ... -> a new connection: ask for what is missing

Used from the thread that prepares a version; while it waits, the engine goes on sampling under the old one. Slowness
is not taken for loss: over one connection nothing is lost, so only a new connection, or a long silence, is a reason to
ask again.
"""

import time
from collections.abc import Iterator

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from common import chunks, weights
from common.chunks import CHUNK, Absent, Chunk, Describe, Described, Fetch, FromServer, ToServer
from common.errors import WireError
from common.gate import secure
from common.image import data_bytes
from common.keys import ClientKeys
from common.weights import Manifest

CREDIT = 12
"""Chunks asked for and not yet here: 48 MiB, which hides a way there and back of 50 ms at 1 GB/s."""
SILENCE_S = 20.0
"""Without an answer, then what is missing is asked for again."""
GIVE_UP_S = 120.0
OPTIONS = {
    zmq.LINGER: 0,
    zmq.SNDHWM: 0,
    zmq.RCVHWM: 0,
    zmq.MAXMSGSIZE: 256 << 20,
    zmq.HEARTBEAT_IVL: 2_000,
    zmq.HEARTBEAT_TIMEOUT: 6_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 1_000,
}
"""A manifest is one frame; the credit bounds what is queued."""


class Stream:
    """A weight server as a source of versions. Not thread-safe."""

    def __init__(self, address: str, keys: ClientKeys | None = None, *, give_up_s: float = GIVE_UP_S) -> None:
        self._address = address
        self._give_up_s = give_up_s
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            self._socket.setsockopt(option, value)
        secure(self._socket, keys)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._num_connections = 0
        self._heard_at = 0.0
        self._socket.connect(address)
        self._poller = zmq.Poller()
        for each in (self._socket, self._monitor):
            self._poller.register(each, zmq.POLLIN)

    def close(self) -> None:
        """Close the connection."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        self._context.term()

    def manifest(self, version: int) -> Manifest:
        """Of a version; raises `WireError` if the server does not have it, `OSError` if it is silent."""
        question = Describe(version=version)
        self._heard_at = time.monotonic()
        self._ask(question)
        while True:
            answer = self._answer(version)
            if answer is None:
                self._ask(question)
            elif isinstance(answer[0], Described):
                manifest = weights.decode_manifest(bytes(answer[1]), f"version {version} of {self._address}")
                if manifest.version != version:
                    raise WireError(f"version {version}: its manifest is that of version {manifest.version}")
                return manifest

    def data(self, manifest: Manifest) -> Iterator[memoryview]:
        """The chunks of a version, in order; raises as `manifest` does."""
        total = data_bytes(manifest)
        self._heard_at = time.monotonic()
        early: dict[int, memoryview] = {}
        asked = want = 0
        while want < total:
            while asked < min(total, want + CREDIT * CHUNK):
                self._ask(_fetch(manifest.version, asked, total))
                asked += CHUNK
            answer = self._answer(manifest.version)
            if answer is None:
                for missing in range(want, asked, CHUNK):
                    if missing not in early:
                        self._ask(_fetch(manifest.version, missing, total))
            elif isinstance(answer[0], Chunk):
                early[_checked(answer[0], answer[1], total)] = answer[1]
            while (piece := early.pop(want, None)) is not None:
                yield piece
                want += CHUNK
            early = {at: piece for at, piece in early.items() if at > want}

    def _ask(self, question: ToServer) -> None:
        self._socket.send(chunks.encoder.encode(question))

    def _answer(self, version: int) -> tuple[FromServer, memoryview] | None:
        """The next answer about this version; None if what is missing should be asked for again."""
        while time.monotonic() - self._heard_at < self._give_up_s:
            ready = dict(self._poller.poll(int(1000 * min(SILENCE_S, self._give_up_s))))
            if self._socket in ready:
                header, data = self._received()
                if header.version != version:
                    continue
                if isinstance(header, Absent):
                    raise WireError(f"the weight server does not have version {version}: {header.reason}")
                return header, data
            if self._monitor not in ready or self._is_new_connection():
                return None
        raise TimeoutError(f"the weight server {self._address} has been silent for {self._give_up_s:.0f} s")

    def _received(self) -> tuple[FromServer, memoryview]:
        frames = self._socket.recv_multipart(copy=False)
        self._heard_at = time.monotonic()
        try:
            header = chunks.from_server_decoder.decode(frames[0].buffer)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise WireError(f"the weight server {self._address} says what is no answer: {error}") from error
        return header, memoryview(frames[-1].buffer)

    def _is_new_connection(self) -> bool:
        recv_monitor_message(self._monitor)
        self._num_connections += 1
        return self._num_connections > 1


def _fetch(version: int, offset: int, total: int) -> Fetch:
    return Fetch(version=version, offset=offset, length=min(CHUNK, total - offset))


def _checked(chunk: Chunk, data: memoryview, total: int) -> int:
    """The offset of a chunk that is as long as it was asked for."""
    if chunk.offset % CHUNK or len(data) != min(CHUNK, total - chunk.offset):
        raise WireError(f"a chunk of {len(data)} bytes at {chunk.offset} was not asked for")
    return chunk.offset
