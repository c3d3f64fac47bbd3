"""What is not what was sent: found by the check behind every message, on both sides."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import protocol
from common.client import Item, QueueClient
from common.protocol import Give, Offer, Ping, Stranger, Write
from tests.memory_broker import MemoryBroker, MemorySocket
from tests.unit.broker.turns import Broker

MESSAGE = Give(request=1, offers=[Offer(queue="q", id="a", frames=2)])
FRAMES = [b"tokens", b"log-probabilities"]


def test_a_whole_message_comes_out_as_it_went_in() -> None:
    content = protocol.unsealed(protocol.sealed(MESSAGE, FRAMES))
    assert content == [protocol.encoder.encode(MESSAGE), *FRAMES]


@given(st.data())
def test_a_flipped_bit_anywhere_is_found(data: st.DataObject) -> None:
    parts = [bytearray(part) for part in protocol.sealed(MESSAGE, FRAMES)]
    part = data.draw(st.sampled_from(parts))
    part[data.draw(st.integers(0, len(part) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert protocol.unsealed([bytes(part) for part in parts]) is None


@pytest.mark.parametrize("parts", [[], [b""], [b"abcd"], protocol.sealed(MESSAGE, FRAMES)[:-1]])
def test_what_has_no_check_is_damaged(parts: list[bytes]) -> None:
    assert protocol.unsealed(parts) is None


def test_the_client_of_a_damaged_message_is_asked_to_say_everything_again(broker: Broker) -> None:
    broker.join("c")
    broker.journal.begin()
    broker.core.receive_damaged(b"c")
    broker.journal.commit()
    assert [message for _, message, _ in broker.core.outbox] == [Stranger()]
    broker.core.outbox.clear()
    assert broker.core.refused.counts == {"damaged": 1}
    assert broker.say("c", Ping()) == [Stranger()]


def test_a_message_that_comes_twice_the_second_time_late_changes_nothing(broker: Broker) -> None:
    broker.join("c")
    stale = Give(request=1, writes=[Write(register="r", value=b"old")])
    broker.say("c", stale)
    broker.say("c", Give(request=2, acked=1, writes=[Write(register="r", value=b"new")]))
    assert broker.say("c", stale) == []
    assert broker.core._register("r").value == b"new"


async def test_a_client_that_hears_damage_recovers_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 3
    put = MemorySocket.recv_multipart

    async def damaged(socket: MemorySocket) -> list[bytes]:
        nonlocal left
        parts = await put(socket)
        if left and b"Deliver" in parts[0]:
            left -= 1
            return [parts[0][:-1] + b"\xff", *parts[1:]]
        return parts

    monkeypatch.setattr(MemorySocket, "recv_multipart", damaged)
    async with MemoryBroker(tmp_path) as broker, broker.client("a") as client:
        await client.give(Item("q", "x", [b"payload"]))
        item = await asyncio.wait_for(client.take("q", window=1).get(), 10)
        assert (item.frames, left) == ([b"payload"], 0)


async def test_a_full_disk_makes_a_client_wait_and_nothing_else(tmp_path: Path) -> None:
    async with MemoryBroker(tmp_path) as broker, broker.client("a") as client:
        await client.give(Item("q", "x", []))
        broker.core.is_full = True
        waiting = asyncio.create_task(_give(client))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        broker.core.is_full = False
        await asyncio.wait_for(waiting, 10)
        assert broker.ids("q") == ["x", "y"]


async def _give(client: QueueClient) -> None:
    await client.give(Item("q", "y", [b"payload"]))
