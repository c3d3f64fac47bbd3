"""Sessions, requests, registers and watches of the broker core, one claim at a time."""

import msgspec
import pytest

from common.protocol import (
    Bye,
    Done,
    Give,
    Hello,
    Offer,
    Ping,
    Pong,
    QueueStats,
    Refused,
    Register,
    Stranger,
    Take,
    ToBroker,
    Unwelcome,
    Watch,
    Welcome,
    Write,
    encoder,
)
from tests.unit.broker.turns import LEASE_S, Broker, deliver


def test_a_late_giver_is_refused_and_nothing_of_its_request_is_done(broker: Broker) -> None:
    broker.give("a")
    broker.join("zombie", q=1)
    broker.now += LEASE_S + 1
    broker.join("w", q=1)
    broker.say("zombie", Hello(name="zombie", incarnation="1"))
    late = Give(
        request=1, settles=[1], offers=[Offer(queue="out", id="a", frames=0)], writes=[Write(register="r", value=b"x")]
    )
    assert broker.say("zombie", late) == [Refused(request=1, reason="lease lost", leases=[1])]
    assert broker.core.ledger.queue("out").num_ready == 0
    assert broker.say("w", Watch(register="r")) == [Register(name="r", version=0, value=b"")]
    assert broker.core.refused.counts == {"lease lost": 1}


def test_a_superseded_process_stays_out_even_after_a_restart_of_the_broker(broker: Broker) -> None:
    broker.give("a")
    broker.join("w", q=1)
    assert broker.join("w", incarnation="2", q=1) == [deliver("a", 2, 2)]
    for _ in range(2):
        (answer,) = broker.say("w-old", Hello(name="w", incarnation="1"))
        assert isinstance(answer, Unwelcome)
        assert broker.say("w-old", Ping(held=[1])) == [Stranger()]
        broker.say("w", Hello(name="w", incarnation="2"))
        assert broker.say("w", Ping(held=[2])) == [Pong()]
        broker.restart()


def test_another_protocol_is_unwelcome(broker: Broker) -> None:
    (answer,) = broker.say("c", Hello(name="c", incarnation="1", protocol=3))
    assert answer == Unwelcome(reason="it speaks protocol 2, the client 3: run the same release everywhere")


def test_a_request_sent_again_is_answered_done_and_done_once(broker: Broker) -> None:
    broker.join("c")
    request = Give(request=1, offers=[Offer(queue="q", id="a", frames=1)], writes=[Write(register="r", value=b"x")])
    for _ in range(3):
        assert broker.say("c", request, b"payload") == [Done(request=1)]
    assert broker.core.ledger.num_given == 1
    assert broker.say("c", Watch(register="r")) == [Register(name="r", version=1, value=b"x")]


@pytest.mark.parametrize("gap", ["restart", "silence", "both"])
def test_an_answer_lost_before_a_gap_is_given_again_after_it(broker: Broker, gap: str) -> None:
    broker.give("a")
    broker.join("c", q=1)
    request = Give(request=1, settles=[1], writes=[Write(register="r", value=b"x", expected=0)])
    broker.say("c", request)
    if gap != "restart":
        broker.now += 100 * LEASE_S
        broker.turn()
        assert broker.say("c", Ping()) == [Stranger()]
    if gap != "silence":
        broker.restart()
    broker.say("c", Hello(name="c", incarnation="1"))
    assert broker.say("c", request) == [Done(request=1)]


def test_an_acknowledged_request_is_forgotten(broker: Broker) -> None:
    broker.join("c")
    for number in range(1, 50):
        broker.say("c", Give(request=number, acked=number - 1))
    assert broker.core._sessions["c"].done == {49}
    broker.restart()
    assert broker.core._sessions["c"].done == {49}


def test_what_the_first_ping_after_hello_does_not_name_goes_back_at_once_and_does_not_count(broker: Broker) -> None:
    broker.give("a", "b")
    broker.join("c", q=2)
    assert broker.say("c", Hello(name="c", incarnation="1"))[0] == Welcome(broker="b", heartbeat_s=1.0, lease_s=LEASE_S)
    assert broker.say("c", Ping(held=[1])) == [Pong()]  # the delivery of b never arrived
    assert broker.say("c", Take(queue="q", window=2)) == [deliver("b", 3, 1)]
    assert broker.say("c", Ping(held=[1])) == [Pong()]  # later pings prove nothing: b may be on its way
    assert broker.say("c", Give(request=1, settles=[1, 3])) == [Done(request=1)]


def test_nothing_is_delivered_between_hello_and_the_takes(broker: Broker) -> None:
    broker.join("c", q=5)
    broker.say("c", Hello(name="c", incarnation="1"))
    broker.give("a")
    assert broker.turn() == {}
    assert broker.say("c", Take(queue="q", window=5)) == [deliver("a", 1)]


def test_a_register_is_written_only_at_the_expected_version(broker: Broker) -> None:
    broker.join("a")
    broker.join("b")
    write = [Write(register="r", value=b"1", expected=0)]
    assert broker.say("a", Give(request=1, writes=write)) == [Done(request=1)]
    assert broker.say("b", Give(request=1, writes=write)) == [
        Refused(request=1, reason="register has another version")
    ]  # fmt: skip
    assert broker.say("b", Give(request=1, writes=[Write(register="r", value=b"2", expected=1)])) == [Done(request=1)]
    broker.restart()
    broker.join("a")
    assert broker.say("a", Watch(register="r")) == [Register(name="r", version=2, value=b"2")]


@pytest.mark.parametrize(
    "give",
    [
        Give(request=1, settles=[1, 1]),
        Give(request=1, writes=[Write(register="r", value=b"1"), Write(register="r", value=b"2")]),
    ],
)
def test_a_request_that_names_something_twice_is_refused(broker: Broker, give: Give) -> None:
    broker.give("a")
    broker.join("c", q=1)
    assert broker.say("c", give) == [Refused(request=1, reason="named twice")]


@pytest.mark.parametrize("frames", [[], [b"1", b"2", b"3"]])
def test_frames_that_do_not_fit_the_offers_are_refused(broker: Broker, frames: list[bytes]) -> None:
    broker.join("c")
    give = Give(request=1, offers=[Offer(queue="q", id="a", frames=2)])
    assert broker.say("c", give, *frames) == [Refused(request=1, reason="frames do not fit the offers")]
    assert broker.core.ledger.queue("q").num_ready == 0


def test_a_watcher_hears_of_a_queue_once_a_turn_and_only_of_news(broker: Broker) -> None:
    broker.join("watcher")
    broker.say("watcher", Watch(register="queue/q"))
    broker.join("giver")
    gives = [
        ("giver", [encoder.encode(Give(request=n, offers=[Offer(queue="q", id=str(n), frames=0)]))]) for n in (1, 2, 3)
    ]
    (register,) = broker.turn(*gives)["watcher"]
    assert isinstance(register, Register)
    assert msgspec.msgpack.decode(register.value, type=QueueStats) == QueueStats(ready=3)
    broker.now += 1
    assert "watcher" not in broker.turn()
    sent = broker.turn(("giver", [encoder.encode(Take(queue="q", window=5))]))["watcher"]
    assert isinstance(sent[0], Register)
    assert msgspec.msgpack.decode(sent[0].value, type=QueueStats) == QueueStats(leased=3, credit=2, oldest_s=1.0)


def test_a_silent_or_unreachable_client_is_no_credit(broker: Broker) -> None:
    broker.join("a", q=4)
    broker.join("b", q=2)
    assert broker.core.stats("q", 0).credit == 6
    broker.core.disconnect(b"a")
    assert broker.core.stats("q", 0).credit == 2
    broker.now += LEASE_S + 1
    broker.turn()
    assert broker.core.stats("q", 0).credit == 0


def test_a_connection_that_speaks_under_a_second_name_leaves_the_first(broker: Broker) -> None:
    broker.join("c", q=1)
    broker.say("c", Hello(name="other", incarnation="1"))
    broker.give("a")
    assert broker.turn() == {}
    assert broker.core.ledger.queue("q").num_ready == 1


@pytest.mark.parametrize("message", [Take(queue="q", window=1), Give(request=1), Watch(register="r"), Ping(), Bye()])
def test_who_has_not_said_hello_is_a_stranger(broker: Broker, message: ToBroker) -> None:
    assert broker.say("c", message) == [Stranger()]
    assert broker.core.refused.counts == {"stranger": 1}
