"""A disk without room: refused with a word, nothing torn, and on it goes when there is room."""

import logging
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from common import protocol
from common.gate import Gate
from common.history import History
from common.protocol import DISK_FULL, Done, FromBroker, Give, Hello, Offer, Ping, Refused, Take, ToBroker, Write
from common.refusals import Refusals
from services.broker.clock import ListeningClock
from services.broker.core import Core
from services.broker.journal import has_no_room, open_journal
from services.broker.room import Room
from services.broker.service import Broker as Service
from tests.unit.broker.turns import Broker


def test_nothing_new_is_accepted_but_work_may_be_finished(broker: Broker) -> None:
    broker.give("a")
    broker.join("c", q=1)
    broker.core.is_full = True
    offer = Offer(queue="q", id="b", frames=0)
    assert broker.say("c", Give(request=1, offers=[offer])) == [Refused(request=1, reason=DISK_FULL)]
    write = Write(register="r", value=b"x")
    assert broker.say("c", Give(request=1, writes=[write])) == [Refused(request=1, reason=DISK_FULL)]
    assert broker.say("c", Give(request=2, settles=[1])) == [Done(request=2)]
    broker.core.is_full = False
    assert broker.say("c", Give(request=1, offers=[offer])) != [Refused(request=1, reason=DISK_FULL)]


def test_too_little_room_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    room = Room(tmp_path, min_free_mb=1 << 40)
    assert room.is_short()
    assert room.is_short()
    assert [record.message for record in caplog.records] == ["disk full: nothing new is accepted"]
    assert not Room(tmp_path, min_free_mb=0).is_short()


def test_sqlite_says_in_its_own_words_that_the_disk_is_full() -> None:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("CREATE TABLE t (x)")
    database.execute("PRAGMA max_page_count=2")
    with pytest.raises(sqlite3.OperationalError) as caught:
        database.execute("INSERT INTO t VALUES (?)", (b"x" * 100_000,))
    database.close()
    assert has_no_room(caught.value)
    assert not has_no_room(sqlite3.OperationalError("no such table"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], check=False).returncode
    ):
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # a test that failed may hold files


class Client:
    """Speaks to a service on a thread of its own, as the real client does after a loss: Hello, then all again."""

    def __init__(self, service: Service, socket: "zmq.Socket[bytes]") -> None:
        self._service = service
        self._socket = socket

    def say(self, message: ToBroker, *frames: bytes) -> list[FromBroker]:
        """What is answered within three turns."""
        self._socket.send_multipart(protocol.sealed(message, frames))
        for _ in range(3):
            self._service.turn()
        answers = []
        while self._socket.poll(10):
            content = protocol.unsealed(self._socket.recv_multipart())
            assert content is not None
            answers.append(protocol.from_broker_decoder.decode(content[0]))
        return answers

    def join(self) -> None:
        self.say(Hello(name="c", incarnation="1"))
        self.say(Ping())


def test_a_turn_that_the_disk_cannot_take_never_happened(disk: Path, tmp_path: Path) -> None:
    journal = open_journal(disk, durability="process", segment_bytes=1 << 16)

    def load() -> Core:
        return Core(journal, incarnation="b", heartbeat_s=1.0, lease_s=1e6, max_deliveries=lambda _: None, now=0.0)

    with (
        zmq.Context() as context,
        context.socket(zmq.ROUTER) as router,
        context.socket(zmq.DEALER) as dealer,
        Gate(context, router, None, Refusals()) as gate,
    ):
        router.bind(f"ipc://{tmp_path}/s")
        dealer.connect(f"ipc://{tmp_path}/s")
        service = Service(
            socket=router, gate=gate, journal=journal, load=load, history=History(tmp_path, "broker-0"),
            clock=ListeningClock(), room=Room(disk, min_free_mb=0), remember_ids=1000,
        )  # fmt: skip
        client = Client(service, dealer)
        client.join()
        payload, accepted = b"x" * 200_000, []
        for number in range(1, 20):
            offer = Offer(queue="q", id=str(number), frames=1)
            if Done(request=number) not in client.say(Give(request=number, offers=[offer]), payload):
                break
            accepted.append(str(number))
        assert 5 < len(accepted) < 10  # of 200 kB, on 2 MiB, beside SQLite's log

        client.join()  # the broker went back to what was committed: this client is a stranger
        deliveries = [m for m in client.say(Take(queue="q", window=20)) if isinstance(m, protocol.Deliver)]
        assert [m.id for m in deliveries] == accepted
        done = client.say(Give(request=50, settles=[m.lease for m in deliveries]))
        assert Done(request=50) in done  # which makes room
        again = Give(request=51, offers=[Offer(queue="q", id="late", frames=1)])
        deadline = time.monotonic() + 10
        while Done(request=51) not in client.say(again, payload):
            assert time.monotonic() < deadline
        journal.close()
