"""The lease queue against a model, under random givers, workers, crashes, restarts, silences and repeated messages."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol import Bye, Deliver, Done, Give, Hello, Offer, Ping, Refused, Take, encoder
from services.broker.core import Core
from services.broker.journal import open_journal

LEASE_S = 10.0


class Script:
    """A broker with named clients; the model is what each client was told."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.now = 100.0
        self.incarnations: dict[str, int] = {}
        self.requests: dict[str, int] = {}
        self.held: dict[str, dict[int, str]] = {}
        """By client: the leases that it believes to hold, with their item."""
        self.given: list[str] = []
        self.effects: list[str] = []
        """Items whose hand-over was acknowledged, in order."""
        self.open()

    def open(self) -> None:
        """Start the broker on what is on disk."""
        self.journal = open_journal(self.folder, durability="process", segment_bytes=1 << 16)
        self.core = Core(
            self.journal, incarnation="b", heartbeat_s=1, lease_s=LEASE_S, max_deliveries=lambda _: None, now=self.now
        )

    def restart(self) -> None:
        """Kill the broker between two turns; clients reconnect as they are."""
        self.journal.close()
        self.open()
        for name in list(self.incarnations):
            self.say(name, Hello(name=name, incarnation=str(self.incarnations[name])))
            self.say(name, Take(queue="in", window=3))

    def say(self, name: str, message: object, frames: tuple[bytes, ...] = ()) -> list[object]:
        """One turn with one message; what the broker answers goes into the clients' views."""
        self.journal.begin()
        self.core.receive(name.encode(), [encoder.encode(message), *frames], now=self.now, wall=self.now)
        self.core.tick(self.now)
        self.core.deliver(self.now, self.now)
        self.journal.commit()
        out, self.core.outbox = self.core.outbox, []
        for peer, answer, place in out:
            if isinstance(answer, Deliver) and answer.queue == "in":
                assert place is not None
                assert self.journal.segments.read(place) == [answer.id.encode()]
                self.held.setdefault(peer.decode(), {})[answer.lease] = answer.id
        return [answer for peer, answer, _ in out if peer == name.encode()]

    def join(self, name: str) -> None:
        """A client starts, or starts again after a crash, having forgotten everything."""
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self.requests[name] = 0
        self.held[name] = {}
        self.say(name, Hello(name=name, incarnation=str(self.incarnations[name])))
        self.say(name, Take(queue="in", window=3))

    def give(self, name: str) -> None:
        """A client gives a new item, perhaps twice."""
        self.requests[name] += 1
        item = f"item{len(self.given)}"
        self.given.append(item)
        message = Give(request=self.requests[name], offers=[Offer(queue="in", id=item, frames=1)])
        for _ in range(self.rng.choice([1, 1, 2])):
            assert Done(request=self.requests[name]) in self.say(name, message, (item.encode(),))

    def hand_over(self, name: str) -> None:
        """A client finishes one item it believes to hold; a lost lease must be refused."""
        if not self.held.get(name):
            return
        lease = self.rng.choice(sorted(self.held[name]))
        item = self.held[name].pop(lease)
        self.requests[name] += 1
        message = Give(request=self.requests[name], settles=[lease], offers=[Offer(queue="out", id=item, frames=1)])
        answers = self.say(name, message, (b"x",))
        if Done(request=self.requests[name]) in answers:
            self.effects.append(item)
            assert Done(request=self.requests[name]) in self.say(name, message, (b"x",))  # the answer was lost
        else:
            assert any(isinstance(answer, Refused) for answer in answers)

    def ping(self, name: str) -> None:
        """A client says that it lives."""
        self.say(name, Ping(held=sorted(self.held.get(name, {}))))

    def step(self, names: list[str]) -> None:
        """Something happens."""
        name = self.rng.choice(names)
        kind = self.rng.choices(
            ["give", "hand_over", "ping", "crash", "restart", "silence", "bye"], [8, 10, 6, 1, 1, 2, 1]
        )[0]
        if kind in ("give", "hand_over", "ping"):
            getattr(self, kind)(name)
        elif kind == "crash":
            self.join(name)
        elif kind == "restart":
            self.restart()
        elif kind == "bye":
            self.say(name, Bye())
            self.join(name)
        else:
            self.now += self.rng.choice([1.0, LEASE_S + 1])
            for client in self.incarnations:  # a silent client says Hello again, as the real one does
                self.say(client, Hello(name=client, incarnation=str(self.incarnations[client])))
                self.say(client, Take(queue="in", window=3))


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_nothing_is_lost_and_every_item_takes_effect_once(seed: int, clients: int) -> None:
    names = [f"c{n}" for n in range(clients)]
    with tempfile.TemporaryDirectory() as folder:
        script = Script(Path(folder), seed)
        for name in names:
            script.join(name)
        for _ in range(60):
            script.step(names)
        for _ in range(400):  # then everybody works until nothing is left
            if len(script.effects) == len(script.given):
                break
            script.now += 4.0
            for name in names:
                script.ping(name)
                script.hand_over(name)
        assert sorted(script.effects) == sorted(script.given)
        assert script.core.ledger.queues["out"].num_ready == len(script.given) if script.given else True
        script.journal.close()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path, 0)


def test_items_come_in_order_and_a_lost_one_returns_to_the_front(script: Script) -> None:
    script.join("giver")
    script.say("giver", Take(queue="in", window=0))
    for _ in range(5):
        script.give("giver")
    script.join("worker")
    given = sorted(set(script.given), key=script.given.index)
    assert list(script.held["worker"].values()) == given[:3]
    script.join("worker")  # crashed and came back: the same three, in the same order
    assert list(script.held["worker"].values()) == given[:3]


def test_a_register_is_written_only_at_the_expected_version(script: Script) -> None:
    from common.protocol import Write

    script.join("a")
    script.join("b")
    write = [Write(register="r", value=b"1", expected=0)]
    assert Done(request=1) in script.say("a", Give(request=1, writes=write))
    refused = script.say("b", Give(request=1, writes=write))
    assert any(isinstance(answer, Refused) for answer in refused)


def test_a_refused_request_does_nothing_of_what_it_asks(script: Script) -> None:
    script.join("a")
    offers = [Offer(queue="out", id="x", frames=0)]
    (refused,) = script.say("a", Give(request=1, settles=[99], offers=offers))
    assert isinstance(refused, Refused)
    assert refused.leases == [99]
    assert "out" not in script.core.ledger.queues or script.core.ledger.queues["out"].num_ready == 0


def test_an_item_that_nobody_settles_becomes_a_dead_letter(tmp_path: Path) -> None:
    script = Script(tmp_path, 0)
    script.core.ledger._max_deliveries = lambda _: 2
    script.join("giver")
    script.say("giver", Take(queue="in", window=0))
    script.give("giver")
    for _ in range(3):
        script.join("worker")
    assert script.core.stats("in", script.now).dead == ["item0"]
    assert [item.holders for item in script.core.ledger.buried] == [["worker", "worker"]]
    script.journal.close()
    script.open()
    assert script.core.stats("in", script.now).dead == ["item0"]


def test_handing_back_on_leaving_does_not_count_as_a_failed_delivery(script: Script) -> None:
    script.core.ledger._max_deliveries = lambda _: 2
    script.join("giver")
    script.say("giver", Take(queue="in", window=0))
    script.give("giver")
    for _ in range(5):
        script.join("worker")
        script.say("worker", Bye())
    assert script.core.stats("in", script.now).dead == []


def test_payload_segments_are_deleted_when_nothing_needs_them(tmp_path: Path) -> None:
    script = Script(tmp_path, 0)
    script.join("c")
    for n in range(40):
        script.requests["c"] += 1
        offers = [Offer(queue="big", id=str(n), frames=1)]
        script.say("c", Give(request=script.requests["c"], offers=offers), (b"x" * 10_000,))
    script.say("c", Take(queue="big", window=40))
    leases = sorted(script.core.ledger._leases)
    assert len(list((tmp_path / "broker").glob("*.segment"))) > 3
    script.say("c", Give(request=script.requests["c"] + 1, settles=leases))
    assert len(list((tmp_path / "broker").glob("*.segment"))) == 1
