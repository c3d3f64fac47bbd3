from pathlib import Path

import pytest

from common import protocol
from common.gate import Origin
from common.keys import ROLES
from common.protocol import (
    Bye,
    Done,
    Give,
    Hello,
    Letter,
    Offer,
    Ping,
    Refused,
    Take,
    ToBroker,
    Unwelcome,
    Watch,
    Write,
)
from services.broker.access import FILTER, RIGHTS, trespass
from services.filter.service import REGISTER
from tests.unit.broker.turns import Broker


def give(queue: str = "scored", settles: int = 1, **fields: object) -> Give:
    offers = [Offer(queue=queue, id="a", frames=0)]
    return Give(request=1, offers=offers, settles=list(range(1, settles + 1)), **fields)  # type: ignore[arg-type]


RETRY = Give(request=1, letters=[Letter(queue="groups", id="a", action="retry")])
ANNOUNCE = Give(request=1, writes=[Write(register="policy", value=b"x")])


@pytest.mark.parametrize(
    ("key", "message", "wrong"),
    [
        ("reward", ANNOUNCE, "write policy"),
        ("rollout", ANNOUNCE, "write policy"),
        ("supervisor", ANNOUNCE, "write policy"),
        ("learner", ANNOUNCE, ""),
        ("supervisor", RETRY, ""),
        ("filter", RETRY, "touch dead letters"),
        ("reward", give(), ""),
        ("reward", give(settles=0), "give more items than it settles"),
        ("reward", give("batches"), "give batches"),
        ("reward-site2", give(), ""),
        ("reward", Take(queue="batches", window=1), "take batches"),
        ("reward", Take(queue="groups", window=1), ""),
        ("reward", Watch(register="filter"), "watch filter"),
        ("rollout", Watch(register="policy"), ""),
        ("supervisor", Watch(register="queue/batches"), ""),
        ("supervisor", Take(queue="batches", window=1), "take batches"),
        ("reward", Hello(name="learner-0", incarnation="1"), "use the name learner-0"),
        ("reward", Hello(name="reward-7", incarnation="1"), ""),
        ("weights", Hello(name="weights-0", incarnation="1"), "use the name weights-0"),
        ("reward", Ping(held=[1]), ""),
        ("nobody", Take(queue="groups", window=1), "take groups"),
        ("", ANNOUNCE, ""),
        ("nobody", Bye(), ""),
    ],
)
def test_a_key_may_do_what_its_role_does_and_nothing_else(key: str, message: ToBroker, wrong: str) -> None:
    assert trespass(key, message) == wrong


def test_every_role_that_connects_has_rights_and_the_filters_register_is_the_filters() -> None:
    assert set(RIGHTS) == set(ROLES) - {"broker", "weights"}
    assert REGISTER == FILTER


def test_a_refused_role_changes_nothing_is_answered_and_counted_with_its_name(tmp_path: Path) -> None:
    broker = Broker(tmp_path)

    def say(key: str, message: ToBroker) -> list[protocol.FromBroker]:
        broker.origin = Origin(key, "10.0.0.7")
        return broker.say("peer", message)

    say("reward", Hello(name="reward-0", incarnation="1"))
    assert say("reward", ANNOUNCE) == [Refused(request=1, reason="the key reward may not write policy")]
    assert say("reward", Take(queue="batches", window=1)) == [Unwelcome(reason="the key reward may not take batches")]
    (told,) = say("learner", Watch(register="policy"))
    assert told == protocol.Register(name="policy", version=0, value=b"")
    assert broker.core.refused.take() == [
        ("not allowed", "reward-0, reward at 10.0.0.7, to write policy", 1),
        ("not allowed", "reward-0, reward at 10.0.0.7, to take batches", 1),
    ]
    assert Done(request=1) in say("learner", ANNOUNCE)
