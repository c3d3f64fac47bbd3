"""Items and leases of the broker core, one claim at a time."""

from pathlib import Path

from common.protocol import Bye, Deliver, Done, Give, Hello, Offer, Ping, Pong, Refused, Take, encoder
from tests.unit.broker.turns import LEASE_S, Broker, deliver


def test_items_come_in_the_order_given_and_no_more_than_the_window(broker: Broker) -> None:
    broker.give("a", "b", "c")
    assert broker.join("w", q=2) == [deliver("a", 1), deliver("b", 2)]
    assert broker.say("w", Give(request=1, settles=[2])) == [Done(request=1), deliver("c", 3)]
    assert broker.say("w", Take(queue="q", window=0)) == []


def test_a_client_that_takes_over_gets_the_items_of_the_one_before_in_the_same_order(broker: Broker) -> None:
    broker.give("a", "b", "c", "d")
    broker.join("w", q=3)
    assert broker.join("w", incarnation="2", q=4) == [
        deliver("a", 4, 2), deliver("b", 5, 2), deliver("c", 6, 2), deliver("d", 7),
    ]  # fmt: skip


def test_an_expired_item_goes_before_those_given_later(broker: Broker) -> None:
    broker.give("a", "b")
    broker.join("slow", q=1)
    broker.now += LEASE_S + 1
    broker.turn()
    assert broker.join("w", q=2) == [deliver("a", 2, 2), deliver("b", 3)]


def test_each_lease_has_its_own_deadline(broker: Broker) -> None:
    broker.give("a", "b")
    broker.join("w", q=2)
    broker.now += LEASE_S - 1
    assert broker.say("w", Ping(held=[2])) == [Pong()]
    broker.now += 2  # 11 s after the delivery: lease 1 is over, lease 2 was kept
    broker.turn()
    assert broker.say("w", Ping(held=[1, 2]))[0] == Pong(lost=[1])


def test_a_lease_of_another_client_cannot_be_settled_or_kept(broker: Broker) -> None:
    broker.give("a")
    broker.join("w", q=1)
    broker.join("thief")
    assert broker.say("thief", Give(request=1, settles=[1])) == [
        Refused(request=1, reason="lease lost", leases=[1])
    ]  # fmt: skip
    assert broker.say("thief", Ping(held=[1])) == [Pong(lost=[1])]


def test_leases_survive_a_restart_of_the_broker_with_a_fresh_deadline(broker: Broker) -> None:
    broker.give("a")
    broker.join("c", q=1)
    broker.now += LEASE_S - 1
    broker.restart()
    broker.now += LEASE_S - 1
    broker.say("c", Hello(name="c", incarnation="1"))
    assert broker.say("c", Ping(held=[1])) == [Pong()]
    assert broker.say("c", Give(request=1, settles=[1])) == [Done(request=1)]


def test_an_id_is_given_once_in_a_queue_even_after_it_was_settled(broker: Broker) -> None:
    broker.give("a")
    broker.join("c", q=1)
    broker.say("c", Give(request=1, settles=[1]))
    broker.restart()
    broker.give("a")
    broker.give("a", queue="other")
    assert broker.core.ledger.queue("q").num_ready == 0
    assert broker.core.ledger.queue("other").num_ready == 1


def test_each_offer_gets_its_own_frames(broker: Broker) -> None:
    broker.join("c")
    offers = [Offer(queue="q", id=name, frames=n) for name, n in (("a", 2), ("b", 0), ("c", 1))]
    broker.say("c", Give(request=1, offers=offers), b"1", b"", b"3")
    items = broker.core.ledger.queue("q").items.values()
    assert [broker.journal.segments.read(item.place) for item in items] == [[b"1", b""], [], [b"3"]]


def test_an_item_that_nobody_settles_becomes_a_dead_letter_that_names_its_holders(tmp_path: Path) -> None:
    broker = Broker(tmp_path, max_deliveries=2)
    broker.give("a", "b")
    for holder in ("x", "y", "z"):
        broker.join(holder, q=1)
        broker.now += LEASE_S + 1
        broker.turn()
    assert [(event, item.id, item.holders) for event, item in broker.core.ledger.buried] == [("dead", "a", ["x", "y"])]
    for _ in range(2):
        assert broker.core.stats("q", broker.now).dead == ["a"]
        broker.restart()


def test_a_queue_without_a_limit_delivers_for_ever(broker: Broker) -> None:
    broker.give("a")
    for n in range(100):
        assert broker.join("learner", incarnation=str(n), q=1) == [deliver("a", n + 1, n + 1)]


def test_handing_back_on_leaving_does_not_count_as_a_failed_delivery(tmp_path: Path) -> None:
    broker = Broker(tmp_path, max_deliveries=2)
    broker.give("a")
    for n in range(5):
        assert broker.join("w", q=1) == [deliver("a", n + 1, 1)]
        broker.say("w", Bye())
    assert broker.core.stats("q", broker.now).dead == []


def test_who_has_the_most_room_is_served_first(broker: Broker) -> None:
    broker.join("small", q=1)
    broker.join("large", q=3)
    broker.join("giver")
    offers = [Offer(queue="q", id=str(n), frames=0) for n in range(4)]
    sent = broker.turn(("giver", [encoder.encode(Give(request=1, offers=offers))]))
    assert [m.id for m in sent["large"] if isinstance(m, Deliver)][:2] == ["0", "1"]
    assert len(sent["small"]) == 1
