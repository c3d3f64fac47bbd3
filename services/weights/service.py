"""Questions of rollouts -> bytes of the store, for ever. The learner has no part in it: it writes its folder.

    socket -> turns -> (bucket) -> shelf -> socket

Waits for questions, at most `TICK_S`, and for the bandwidth cap. Nothing is kept between two questions, so this
process may die and be started again at any moment.
"""

import logging
import threading
import time
from functools import partial
from typing import Any

import msgspec
import zmq
from prometheus_client import Counter

from common import chunks
from common.chunks import CHUNK, MAX_QUESTIONS, Absent, Chunk, Describe, Described, Fetch, FromServer, ToServer
from common.errors import UserError, WireError
from common.gate import Gate, Origin, listen, origin
from common.keys import role_of, server_keys
from common.life import Process, in_thread
from common.refusals import Refusals
from common.stages import Stage
from services.weights.config import WeightsConfig
from services.weights.shelf import Shelf
from services.weights.turns import Bucket, Turns

log = logging.getLogger(__name__)

TICK_S = 0.2
READERS = ("rollout", "evaluation")
"""Roles whose keys may ask."""
MAX_QUESTION = 1 << 10
"""Bytes of a question at most."""

BYTES = Counter("dapo_weights_bytes_total", "Bytes of weights sent.")
REFUSED = Counter("dapo_weights_refused_total", "Questions refused.", ["reason"])


async def run(process: Process[WeightsConfig]) -> None:
    """Serve until cancelled."""
    await in_thread(serve, process)


def serve(process: Process[WeightsConfig], stop: threading.Event) -> None:
    """Open the socket, then answer until `stop` is set."""
    config, address = process.config, process.config.bind or process.run.weights
    if not address:
        raise UserError('no address to serve weights on: set [run] weights = "tcp://127.0.0.1:5571"')
    keys, refused = server_keys(process.run.keys, "weights"), Refusals()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket, Gate(context, socket, keys, refused) as gate:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 2 * MAX_QUESTIONS)
        socket.setsockopt(zmq.RCVHWM, 2 * MAX_QUESTIONS)
        listen(
            socket, address, role="weights", has_keys=keys is not None, allow_remote=config.allow_remote,
            max_frame_bytes=MAX_QUESTION,
        )  # fmt: skip
        log.info("weight server is up", extra={"address": address})
        bucket = Bucket(1e6 * config.max_mb_per_s, 2 * CHUNK, time.monotonic)
        server = Server(
            socket=socket, gate=gate, shelf=Shelf(process.run.path / "weights"), bucket=bucket, refused=refused
        )
        while not stop.is_set():
            server.turn()


class Server:
    """Joins the shelf to a socket."""

    def __init__(
        self, *, socket: "zmq.Socket[bytes]", gate: Gate, shelf: Shelf, bucket: Bucket, refused: Refusals
    ) -> None:
        self._socket = socket
        self._gate = gate
        self._shelf = shelf
        self._bucket = bucket
        self._refused = refused
        self._turns: Turns[ToServer] = Turns()
        self._stage = Stage("weights")
        self._poller = zmq.Poller()
        for each in (socket, *gate.sockets):
            self._poller.register(each, zmq.POLLIN)

    def turn(self) -> None:
        """Take the questions that have come, answer one of each peer at most."""
        wait_s = min(TICK_S, self._bucket.wait_s()) if self._turns else TICK_S
        with self._stage.blocked() if self._turns else self._stage.starved():
            self._poller.poll(int(1000 * wait_s + 0.999))
        with self._stage.busy():
            self._gate.serve()
            self._drain()
            if self._turns and not self._bucket.wait_s():
                self._answer(*self._turns.next())
        self._report()

    def _drain(self) -> None:
        for _ in range(MAX_QUESTIONS):
            try:
                peer, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._hear(peer.bytes, frames[0].bytes if frames else b"", origin((frames or [peer])[0]))

    def _hear(self, peer: bytes, data: bytes, who: Origin) -> None:
        if who.key and role_of(who.key) not in READERS:
            self._refused.add("not allowed", str(who))
            return
        try:
            question = chunks.to_server_decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            self._refused.add("malformed", str(who))
            return
        if not self._turns.add(peer, question):
            self._refused.add("too many questions", str(who))

    def _answer(self, peer: bytes, question: ToServer) -> None:
        try:
            message, data = self._found(question)
        except (OSError, WireError) as error:
            self._refused.add("absent", f"version {question.version}")
            message, data = Absent(version=question.version, reason=str(error)[:1000]), b""
        send = partial(self._socket.send_multipart, flags=zmq.NOBLOCK, copy=len(data) < zmq.COPY_THRESHOLD)
        try:
            send([peer, chunks.encoder.encode(message), data])
        except zmq.ZMQError as error:
            self._turns.forget(peer)
            log.info("rollout is unreachable", extra={"peer": peer.hex(), "cause": str(error)})
            return
        self._bucket.spend(len(data))
        BYTES.inc(len(data))

    def _found(self, question: ToServer) -> tuple[FromServer, Any]:
        if isinstance(question, Describe):
            return Described(version=question.version), self._shelf.get(question.version).manifest
        assert isinstance(question, Fetch)
        piece = self._shelf.piece(question.version, question.offset, question.length)
        return Chunk(version=question.version, offset=question.offset), piece

    def _report(self) -> None:
        self._refused.report(REFUSED, time.monotonic())
