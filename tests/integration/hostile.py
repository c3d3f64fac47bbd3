"""Peers that mean harm, one function each: what a stranger, or a process that was taken over, could send.

Each runs until `stop` is set, at the pace of an attacker who shares the machine with its victim: the point is what the
messages do, not who has more processors.
"""

import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import zmq

from common.gate import secure
from common.keys import ClientKeys, client_keys
from common.protocol import Give, Hello, Offer, Ping, Take, Write, checksum, encoder

PACE_S = 0.002
MARKER = "dapo-pickle-was-loaded"


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.folder / MARKER,)


@contextmanager
def dealer(address: str, keys: ClientKeys | None) -> "Iterator[zmq.Socket[bytes]]":
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.SNDHWM, 10)
        peer.setsockopt(zmq.RECONNECT_IVL, 10)
        secure(peer, keys)
        peer.connect(address)
        yield peer


def send(address: str, keys: ClientKeys | None, messages: list[list[bytes]], stop: threading.Event) -> None:
    """Say these things over and over."""
    with dealer(address, keys) as peer:
        while not stop.is_set():
            for parts in messages:
                try:
                    peer.send_multipart([*parts, checksum(parts)], zmq.NOBLOCK)
                except zmq.Again:
                    break
                time.sleep(PACE_S)
            time.sleep(PACE_S)


def raw(address: str, content: bytes, stop: threading.Event) -> None:
    """Bytes that are no ZeroMQ, on one new connection after the other."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    while not stop.is_set():
        with socket.create_connection((host, int(port))) as connection:
            try:
                connection.sendall(content)
            except OSError:
                continue
            finally:
                time.sleep(10 * PACE_S)


def stalled(address: str, stop: threading.Event) -> None:
    """Connections that say half a greeting and then nothing."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    held = []
    while not stop.is_set():
        held.append(socket.create_connection((host, int(port))))
        held[-1].sendall(b"\xff\x00\x00")
        time.sleep(20 * PACE_S)
    for connection in held:
        connection.close()


def attacks(address: str, folder: Path, keys: str) -> dict[str, Callable[[threading.Event], None]]:
    """By name."""
    good = client_keys(keys, "reward")
    assert good is not None
    other = dict(zip(("public", "secret"), zmq.curve_keypair(), strict=True))
    unknown = ClientKeys(**other, server=good.server)
    deceived = ClientKeys(public=good.public, secret=good.secret, server=other["public"])
    evil = pickle.dumps(Bomb(folder))
    takeover = encoder.encode(Hello(name="learner-0", incarnation="evil"))
    bombs = [
        [evil], [b""], [b"\x9f\xfd\x74\xf7\xdd\x74\xff\xfd\xbd"], [b"\xdd\xff\xff\xff\xff"], [b"\x91" * 100_000],
        [b"\xc9\x00\x00\x00\x01\x05x"], [msgspec.msgpack.encode({"type": "Done", "request": 1})],
    ]  # fmt: skip
    trespasses = [
        [encoder.encode(Hello(name="reward-9", incarnation="1"))], [encoder.encode(Ping())], [takeover],
        [encoder.encode(Give(request=1, writes=[Write(register="policy", value=b"mine")]))],
        [encoder.encode(Give(request=2, offers=[Offer(queue="batches", id="x", frames=1)])), b"x"],
        [encoder.encode(Give(request=3, offers=[Offer(queue="scored", id="x", frames=1)])), b"x"],
        [encoder.encode(Take(queue="batches", window=1000))],
    ]  # fmt: skip
    return {
        "no key": lambda stop: send(address, None, [[evil], [takeover]], stop),
        "unknown key": lambda stop: send(address, unknown, [[evil], [takeover]], stop),
        "wrong key of the server": lambda stop: send(address, deceived, [[evil]], stop),
        "garbage on the port": lambda stop: raw(address, b"\x80\x03garbage" * 1000, stop),
        "stalled handshakes": lambda stop: stalled(address, stop),
        "bombs with a key": lambda stop: send(address, good, bombs, stop),
        "another role": lambda stop: send(address, good, trespasses, stop),
        "frames over the limit": lambda stop: send(address, good, [[b"x" * (2 << 20)]], stop),
        "flood of pings": lambda stop: send(address, good, [[encoder.encode(Ping())]] * 50, stop),
    }
