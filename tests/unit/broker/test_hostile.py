"""Whatever a peer sends, the core refuses or obeys, and goes on."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol import Done, Give, Offer, Ping, Stranger, Take, encoder
from tests.unit.broker.turns import Broker

ATOMS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3) | st.binary()
THINGS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
KEYS = st.sampled_from([
    "name", "incarnation", "protocol", "queue", "window", "request", "acked", "offers", "settles", "reason", "writes",
    "register", "held", "id", "frames", "value", "expected",
])  # fmt: skip
TYPES = st.sampled_from(["Hello", "Take", "Give", "Watch", "Ping", "Bye", "Welcome", "Offer", "", "__reduce__"])
MAPS = st.builds(lambda kind, rest: {"type": kind, **rest}, TYPES, st.dictionaries(KEYS, THINGS, max_size=6))
HEADERS = st.binary(max_size=64) | (MAPS | THINGS).map(msgspec.msgpack.encode)
MESSAGES = st.lists(HEADERS | st.binary(max_size=9), max_size=4)


@given(st.lists(MESSAGES, max_size=20))
def test_garbage_changes_nothing_for_an_honest_client(messages: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.give("a")
        (delivery,) = broker.join("honest", q=1)
        for parts in messages:
            broker.turn(("hostile", parts))
        assert broker.say("honest", Give(request=1, settles=[1])) == [Done(request=1)]
        assert delivery.id == "a"
        broker.journal.close()


BOMBS = {
    "nothing": b"",
    "deep list": b"\x91" * 200_000,
    "deep map": b"\x81\xa1a" * 200_000,
    "length without content": b"\xdd\xff\xff\xff\xff",
    "long string": b"\xdb\xff\xff\xff\xff",
    "name that is no text": b"\x82\xa4type\xa4Take\xa5queue\xa2\xff\xfe",
    "extension": b"\xc9\x00\x00\x00\x01\x05x",
    "many leases": msgspec.msgpack.encode({"type": "Ping", "held": [1] * 70_000}),
    "long name": msgspec.msgpack.encode({"type": "Hello", "name": "x" * 129, "incarnation": "1"}),
    "negative window": msgspec.msgpack.encode({"type": "Take", "queue": "q", "window": -1}),
    "huge number": msgspec.msgpack.encode({"type": "Give", "request": 2**63}),
    "server message": msgspec.msgpack.encode({"type": "Done", "request": 1}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_no_message_is_counted_and_not_answered(broker: Broker, name: str) -> None:
    broker.join("c")
    assert broker.turn(("c", [BOMBS[name]])) == {}
    assert broker.core.refused.counts == {"malformed": 1}
    assert broker.say("c", Ping()) != [Stranger()]


def test_a_message_without_parts_is_malformed(broker: Broker) -> None:
    assert broker.turn(("c", [])) == {}
    assert broker.core.refused.counts == {"malformed": 1}


def test_frames_behind_a_message_that_has_none_are_ignored(broker: Broker) -> None:
    broker.join("c")
    assert broker.turn(("c", [encoder.encode(Take(queue="q", window=1)), b"x", b"y"])) == {}
    assert broker.core.stats("q", 0).credit == 1


def test_an_offer_cannot_claim_frames_of_another(broker: Broker) -> None:
    broker.join("c")
    offers = [Offer(queue="q", id="a", frames=65536), Offer(queue="q", id="b", frames=0)]
    (answer,) = broker.say("c", Give(request=1, offers=offers), b"x")
    assert answer != Done(request=1)
