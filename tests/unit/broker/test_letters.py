"""Dead letters: a person has the last word."""

from pathlib import Path

import pytest

from common.protocol import Deliver, Done, Give, Letter, Refused
from tests.unit.broker.turns import Broker, deliver


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """With the dead letter `a` in `q`."""
    broker = Broker(tmp_path, max_deliveries=1)
    broker.give("a", "b")
    broker.join("w", q=1)
    broker.join("w", incarnation="2")  # its first life ended with the item
    assert broker.core.stats("q", 0).dead == ["a"]
    return broker


def decide(broker: Broker, action: str, name: str = "a") -> object:
    broker.join("person")
    letter = Letter(queue="q", id=name, action=action)  # type: ignore[arg-type]
    (answer,) = [m for m in broker.say("person", Give(request=1, letters=[letter])) if not isinstance(m, Deliver)]
    return answer


def test_a_letter_that_is_retried_comes_before_what_was_given_later(broker: Broker) -> None:
    assert decide(broker, "retry") == Done(request=1)
    assert broker.core.stats("q", 0).dead == []
    broker.restart()  # the decision is on disk
    assert broker.join("w", incarnation="3", q=2) == [deliver("a", 2), deliver("b", 3)]


def test_a_letter_that_is_dropped_is_gone_with_its_payload(broker: Broker) -> None:
    assert decide(broker, "drop") == Done(request=1)
    broker.restart()
    assert [item.id for item in broker.core.ledger.queue("q").items.values()] == ["b"]
    assert broker.core.stats("q", 0).dead == []
    rows = broker.journal._db.execute("SELECT queue, reason, count FROM settled").fetchall()
    assert rows == [("q", "dead letter dropped", 1)]


def test_a_letter_that_does_not_exist_is_refused(broker: Broker) -> None:
    assert decide(broker, "retry", name="b") == Refused(request=1, reason="no such dead letter")


def test_what_becomes_of_a_letter_is_told_in_order(broker: Broker) -> None:
    decide(broker, "retry")
    assert [(event, item.id) for event, item in broker.core.ledger.buried] == [("dead", "a"), ("retried", "a")]
