"""Handshakes of real sockets in one process: who gets in, and what is counted when somebody does not."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from common import keys
from common.gate import Gate, origin, secure
from common.keys import ClientKeys, client_keys, server_keys
from common.refusals import MAX_PEERS, Refusals


class Listener:
    """A ROUTER with a gate."""

    def __init__(self, folder: Path) -> None:
        keys.create(folder)
        self.refused = Refusals()
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.gate = Gate(self.context, self.socket, server_keys(str(folder), "broker"), self.refused)
        self.address = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"

    def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Turn the loop until the condition holds."""
        deadline = time.monotonic() + seconds
        poller = zmq.Poller()
        for each in (self.socket, *self.gate.sockets):
            poller.register(each, zmq.POLLIN)
        while not condition() and time.monotonic() < deadline:
            poller.poll(50)
            self.gate.serve()

    def close(self) -> None:
        self.gate.__exit__()
        self.socket.close(linger=0)
        self.context.term()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path)
    yield listener
    listener.close()


def speak(listener: Listener, own: ClientKeys | None, condition: Callable[[], object]) -> None:
    """Connect, say something, and turn until the condition holds."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        secure(peer, own)
        peer.connect(listener.address)
        peer.send(b"hello")
        listener.until(condition)


def test_a_known_key_gets_in_and_its_messages_carry_its_name(listener: Listener, tmp_path: Path) -> None:
    speak(listener, client_keys(str(tmp_path), "reward"), lambda: listener.socket.poll(0))
    _, frame = listener.socket.recv_multipart(copy=False)
    assert str(origin(frame)) == "reward at 127.0.0.1"
    assert not listener.refused.counts


@pytest.mark.parametrize("who", ["unknown key", "no key", "wrong server"])
def test_who_is_not_on_the_list_says_nothing_and_is_counted(listener: Listener, tmp_path: Path, who: str) -> None:
    good = client_keys(str(tmp_path), "reward")
    assert good is not None
    public, secret = zmq.curve_keypair()
    own = {
        "unknown key": ClientKeys(public=public, secret=secret, server=good.server),
        "no key": None,
        "wrong server": ClientKeys(public=good.public, secret=good.secret, server=public),
    }[who]
    speak(listener, own, lambda: listener.refused.counts)
    assert not listener.socket.poll(50)
    found = {(reason, peer) for reason, peer, _ in listener.refused.take()}
    if who == "unknown key":
        assert found == {("unknown key", "somebody at 127.0.0.1")}
    else:  # the connection may be over before its address was asked for
        assert {reason for reason, _ in found} <= {"no key, or wrong key of the server", "broken off"}
        assert {peer for _, peer in found} <= {"somebody at 127.0.0.1", "somebody at an unknown address"}


def test_a_key_that_was_taken_off_the_list_is_out_after_a_restart(tmp_path: Path) -> None:
    keys.create(tmp_path)
    (tmp_path / "public" / "reward.pub").unlink()
    server = server_keys(str(tmp_path), "broker")
    client = client_keys(str(tmp_path), "reward")
    assert server is not None
    assert client is not None
    assert client.public not in server.allowed


def test_a_flood_of_peers_is_remembered_in_bounded_memory() -> None:
    refused = Refusals()
    for number in range(5 * MAX_PEERS):
        refused.add("unknown key", f"peer {number}")
    assert refused.counts == {"unknown key": 5 * MAX_PEERS}
    taken = refused.take()
    assert len(taken) == MAX_PEERS + 1
    assert ("unknown key", "many", 4 * MAX_PEERS) in taken
    assert not refused.counts
