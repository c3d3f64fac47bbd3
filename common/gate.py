"""Who gets through a listening socket: CURVE for strangers, limits for everybody, each refusal counted with its peer.

    handshake -> is the key in the allow list? (ZAP, rfc.zeromq.org/spec/27) -> messages carry the name of their key

    with Gate(context, socket, keys, refused) as gate:         before `bind`
        ...
        gate.serve()                                  often: handshakes wait for it

Who has a key that is not on the list is named by address. Of a handshake that failed before, the address is asked of
the kernel, which may have forgotten a connection that is over.

Not covered: a flood of connections that never finish their handshake costs a file descriptor each for `HANDSHAKE_MS`.
"""

import asyncio
import contextlib
import logging
import socket as sockets
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import zmq
import zmq.asyncio
from zmq.utils import z85
from zmq.utils.monitor import _MonitorMessage, recv_monitor_message

from common.errors import UserError
from common.keys import ClientKeys, ServerKeys
from common.refusals import Refusals

log = logging.getLogger(__name__)

ZAP = "inproc://zeromq.zap.01"
DOMAIN = b"dapo"
HANDSHAKE_MS = 5_000
"""How long a peer may take to prove itself."""
FAILURES: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "broken off",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no key, or wrong key of the server",
}
"""Failed handshakes that the allow list never sees."""
AT_CLIENT: dict[int, str] = FAILURES | {zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the key is not in the listener's allow list"}


class Origin(NamedTuple):
    """Where a message came from, as far as the transport vouches for it."""

    key: str = ""
    """Name of the peer's key; empty without keys."""
    address: str = ""

    def __str__(self) -> str:
        return f"{self.key or 'somebody'} at {self.address or 'an unknown address'}"


NOBODY = Origin()


def origin(frame: zmq.Frame) -> Origin:
    """Who sent this frame."""
    return Origin(_property(frame, "User-Id"), _property(frame, "Peer-Address"))


def is_local(address: str) -> bool:
    """Whether only this machine reaches the address; other host names than localhost are not looked up."""
    if address.startswith(("ipc://", "inproc://", "tcp://localhost:")):
        return True
    try:
        return ip_address(urlsplit(address).hostname or "").is_loopback
    except ValueError:
        return False


def listen(
    socket: "zmq.Socket[bytes]", address: str, *, role: str, has_keys: bool, allow_remote: bool, max_frame_bytes: int
) -> None:
    """Bind; beyond loopback only with keys, or where the configuration vouches for the network."""
    if not has_keys and not allow_remote and not is_local(address):
        raise UserError(
            f"{role} address {address} is reachable from other machines: make keys with `dapo keys DIR` and set "
            f"[run] keys, or use tcp://127.0.0.1:PORT, or set [{role}] allow_remote = true on a network that no "
            "stranger can reach"
        )
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise UserError(
            f"{role} address {address} cannot be opened ({error.strerror}): if another run uses it, "
            "set it to a free port, tcp://127.0.0.1:PORT"
        ) from error


def secure(socket: "zmq.Socket[Any]", keys: ClientKeys | None) -> None:
    """Give a client's socket its keys, before `connect`."""
    if keys is not None:
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys.public, keys.secret, keys.server


@contextlib.asynccontextmanager
async def tell_failures(socket: zmq.asyncio.Socket, address: str) -> AsyncIterator[None]:
    """Log why a client's handshakes fail during the block, each cause once; libzmq itself tries again in silence."""
    monitor = socket.get_monitor_socket(zmq.Event(sum(AT_CLIENT)))

    async def watch() -> None:
        told: set[str] = set()
        while True:
            event = await recv_monitor_message(monitor)
            cause = AT_CLIENT[event["event"]]
            if cause not in told:
                told.add(cause)
                log.error("handshake failed", extra={"address": address, "cause": cause})

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        socket.disable_monitor()
        monitor.close(linger=0)


class Gate:
    """The allow list of one listening socket, and the eyes on its handshakes. Without keys everybody passes."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        socket: "zmq.Socket[bytes]",
        keys: ServerKeys | None,
        refused: Refusals,
    ) -> None:
        self._refused = refused
        self._keys = keys
        self._socket = socket
        self._addresses: dict[int, str] = {}
        self.sockets: Sequence[zmq.Socket[bytes]] = ()
        """To be polled; `serve` when one is readable."""
        if keys is not None:
            self._zap = context.socket(zmq.REP)
            self._zap.bind(ZAP)
            socket.curve_server, socket.curve_secretkey, socket.zap_domain = True, keys.secret, DOMAIN
            events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
            self._monitor = socket.get_monitor_socket(events | zmq.Event(sum(FAILURES)))
            self.sockets = (self._zap, self._monitor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.sockets:
            self._socket.disable_monitor()
            for socket in self.sockets:
                socket.close(linger=0)

    def serve(self) -> None:
        """Answer the handshakes that wait."""
        if self.sockets:
            while self._zap.poll(0):
                self._zap.send_multipart(self._judge(self._zap.recv_multipart()))
            while self._monitor.poll(0):
                self._observe(recv_monitor_message(self._monitor))

    def _judge(self, request: list[bytes]) -> list[bytes]:
        """Reply to a ZAP request: 200 and the name of the key, or 400."""
        assert self._keys is not None
        version, sequence, _, address, _, mechanism, *credentials = request
        known = len(credentials) == 1 and mechanism == b"CURVE"
        name = self._keys.allowed.get(z85.encode(credentials[0])) if known else None
        if name is None:
            self._refused.add("unknown key", str(Origin(address=address.decode(errors="replace"))))
            return [version, sequence, b"400", b"unknown key", b"", b""]
        return [version, sequence, b"200", b"OK", name.encode(), b""]

    def _observe(self, event: _MonitorMessage) -> None:
        """Count failed handshakes; the peer's address is asked of the kernel while the connection lasts."""
        kind, value = event["event"], event["value"]
        if kind == zmq.EVENT_ACCEPTED:
            self._addresses[value] = _peer_address(value)
        elif kind == zmq.EVENT_DISCONNECTED:
            address = self._addresses.pop(value, "")
            if self._failure:
                self._refused.add(self._failure, str(Origin(address=address)))
        self._failure = FAILURES.get(kind, "")

    _failure = ""
    """Cause of the handshake that failed last; the connection's end follows it."""


def _property(frame: zmq.Frame, name: str) -> str:
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""


def _peer_address(handle: int) -> str:
    """Who is at the other end of a connection that libzmq owns; empty if it is over already."""
    try:
        with sockets.fromfd(handle, sockets.AF_INET, sockets.SOCK_STREAM) as copy:
            return str(copy.getpeername()[0])
    except OSError:
        return ""
