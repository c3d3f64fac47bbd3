"""The broker core against a model of a lease queue (model.py), whatever clients say and whatever dies in between."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common.protocol import (
    Bye,
    Deliver,
    Done,
    FromBroker,
    Give,
    Hello,
    Offer,
    Ping,
    Pong,
    Refused,
    Stranger,
    Take,
    ToBroker,
    Unwelcome,
    Welcome,
    Write,
)
from tests.unit.broker.model import Model
from tests.unit.broker.turns import LEASE_S, Broker

CLIENTS = st.sampled_from(["a", "b", "c"])
WINDOWS = st.integers(0, 3)


def subsets(leases: set[int]) -> st.SearchStrategy[set[int]]:
    return st.sets(st.sampled_from(sorted(leases))) if leases else st.just(set())


class LeaseQueue(RuleBasedStateMachine):
    """Three clients that give, take and hand over. What each was told is its view, which may be out of date."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.incarnations = dict.fromkeys("abc", 0)
        self.alive: set[str] = set()
        """Clients that have not said Bye."""
        self.superseded: set[tuple[str, str]] = set()
        self.requests = dict.fromkeys("abc", 0)
        self.last: dict[str, Give] = {}
        """By client: its last request that was done."""
        self.believed: dict[str, set[int]] = {name: set() for name in "abc"}
        """By client: leases it was told of and has neither settled nor been told lost."""
        self.num_given, self.register = 0, 0

    @initialize(limit=st.sampled_from([None, 2]))
    def start(self, limit: int | None) -> None:
        self.broker = Broker(self.folder, max_deliveries=limit)
        self.model = Model(lease_s=LEASE_S, limit=limit, now=self.broker.now)
        for name in self.incarnations:
            self.join(name, window=2)

    def teardown(self) -> None:
        self.broker.journal.close()
        shutil.rmtree(self.folder)

    def say(self, name: str, message: ToBroker) -> list[FromBroker]:
        """One message, one turn; the model sees the same and judges the deliveries. Returns the answers."""
        sent = self.broker.turn((name, self.broker.parts(message)))
        self.model.now = self.broker.now
        if name in self.model.seen:
            self.model.seen[name] = self.broker.now
        self.apply(name, message)
        self.model.expire()
        deliveries = [(m, peer) for peer, ms in sent.items() for m in ms if isinstance(m, Deliver)]
        for delivery, peer in sorted(deliveries, key=lambda pair: pair[0].lease):
            self.model.deliver(delivery, peer)
            self.believed[peer].add(delivery.lease)
        return [m for m in sent.get(name, []) if not isinstance(m, Deliver)]

    def apply(self, name: str, message: ToBroker) -> None:
        """The part of a message that the model follows here; `Give` is judged by its answer."""
        if isinstance(message, Hello) and name in self.incarnations:
            self.model.hello(name)
        elif name in self.model.seen and isinstance(message, Take):
            self.model.windows[name] = message.window
        elif name in self.model.seen and isinstance(message, Ping):
            for number in self.model.held_by(name).intersection(message.held):
                self.model.leases[number].deadline = self.model.now + LEASE_S

    def connect(self, name: str) -> None:
        """As the real client does before it says anything else."""
        if name not in self.alive:
            self.join(name, window=3)
        elif name not in self.model.seen:
            self.state_again(name, self.believed[name], window=3)

    @rule(name=CLIENTS, window=WINDOWS)
    def join(self, name: str, window: int) -> None:
        """A new process takes over the name, having forgotten everything."""
        if name in self.alive:
            self.superseded.add((name, str(self.incarnations[name])))
        self.alive.add(name)
        self.incarnations[name] += 1
        self.forget(name)
        self.model.take_back(self.model.held_by(name), failed=True)
        assert self.say(name, self.hello(name)) == [Welcome(broker="b", heartbeat_s=1.0, lease_s=LEASE_S)]
        self.say(name, Ping())
        self.say(name, Take(queue="in", window=window))

    @rule(name=CLIENTS, window=WINDOWS, data=st.data())
    def resume(self, name: str, window: int, data: st.DataObject) -> None:
        """The same process says Hello; some deliveries never arrived."""
        self.connect(name)
        self.state_again(name, data.draw(subsets(self.believed[name])), window)

    def state_again(self, name: str, arrived: set[int], window: int) -> None:
        self.say(name, self.hello(name))
        held = self.model.held_by(name)
        self.model.take_back(held - arrived, failed=False)
        assert self.say(name, Ping(held=sorted(arrived))) == [Pong(lost=sorted(arrived - held))]
        self.believed[name] = arrived & held
        self.say(name, Take(queue="in", window=window))

    @rule(data=st.data())
    @precondition(lambda self: self.superseded)
    def come_back_from_the_dead(self, data: st.DataObject) -> None:
        """A process whose name another one has taken wakes up."""
        name, incarnation = data.draw(st.sampled_from(sorted(self.superseded)))
        (answer,) = self.say("zombie", Hello(name=name, incarnation=incarnation))
        assert isinstance(answer, Unwelcome)
        assert self.say("zombie", Ping(held=sorted(self.believed[name]))) == [Stranger()]

    @rule(name=CLIENTS, number=st.integers(1, 4), repeats=st.integers(1, 2))
    def give(self, name: str, number: int, repeats: int) -> None:
        """New items, and an id that was given before."""
        self.connect(name)
        items = range(self.num_given, self.num_given + number)
        self.num_given += number
        for item in items:
            self.model.give(item)
        offers = [Offer(queue="in", id=str(n), frames=0) for n in (*items, items[0], 0)]
        for _ in range(repeats):
            assert isinstance(self.request(name, settles=[], offers=offers), Done)

    @rule(name=CLIENTS, data=st.data())
    def hand_over(self, name: str, data: st.DataObject) -> None:
        """A client finishes what it believes to hold; if it is mistaken in one, nothing happens."""
        self.connect(name)
        self.settle(name, data.draw(subsets(self.believed[name])))

    @rule(name=CLIENTS)
    def work(self, name: str) -> None:
        """A client finishes all that it holds."""
        self.connect(name)
        self.settle(name, set(self.believed[name]))

    @rule(thief=CLIENTS, victim=CLIENTS)
    def steal(self, thief: str, victim: str) -> None:
        """A client names the leases of another."""
        if thief != victim:
            self.connect(thief)
            stolen = sorted(self.believed[victim])
            assert self.say(thief, Ping(held=stolen)) == [Pong(lost=stolen)]
            self.settle(thief, set(stolen))

    def settle(self, name: str, leases: set[int]) -> None:
        lost = sorted(leases - self.model.held_by(name))
        if not lost:
            for number in leases:
                self.model.settle(number)
        answer = self.request(name, settles=sorted(leases), offers=[])
        if lost:
            assert answer == Refused(request=self.requests[name] + 1, reason="lease lost", leases=lost)
            self.believed[name] -= set(lost)
        else:
            assert isinstance(answer, Done)
            self.believed[name] -= leases

    @rule(name=CLIENTS, offset=st.integers(-1, 1))
    def write(self, name: str, offset: int) -> None:
        """Compare and set."""
        if self.register + offset >= 0:
            self.connect(name)
            writes = [Write(register="r", value=b"v", expected=self.register + offset)]
            answer = self.request(name, settles=[], offers=[], writes=writes)
            assert isinstance(answer, Refused if offset else Done)
            self.register += not offset

    @rule(name=CLIENTS)
    def repeat(self, name: str) -> None:
        """The answer to the last request that was done was lost."""
        self.connect(name)
        if name in self.last:
            assert self.say(name, self.last[name]) == [Done(request=self.last[name].request)]

    def request(self, name: str, **fields: object) -> FromBroker:
        give = Give(request=self.requests[name] + 1, **fields)  # type: ignore[arg-type]
        (answer,) = self.say(name, give)
        if isinstance(answer, Done):
            self.last[name], self.requests[name] = give, give.request
        return answer

    @rule(name=CLIENTS, data=st.data())
    def ping(self, name: str, data: st.DataObject) -> None:
        """A client keeps some of what it believes to hold; it may have been silent for too long to be known."""
        held = data.draw(subsets(self.believed[name]))
        lost = sorted(held - self.model.held_by(name))
        if name in self.model.seen:
            assert self.say(name, Ping(held=sorted(held))) == [Pong(lost=lost)]
            self.believed[name] -= set(lost)
        else:
            assert self.say(name, Ping(held=sorted(held))) == [Stranger()]

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S + 1]))
    def wait(self, seconds: float) -> None:
        self.broker.now += seconds

    @rule(name=CLIENTS)
    def leave(self, name: str) -> None:
        """Bye."""
        self.connect(name)
        self.model.take_back(self.model.held_by(name), failed=False)
        self.model.disconnect(name)
        assert self.say(name, Bye()) == []
        self.alive.remove(name)
        self.forget(name)

    def forget(self, name: str) -> None:
        self.last.pop(name, None)
        self.requests[name] = 0
        self.believed[name].clear()

    @rule()
    def restart_broker(self) -> None:
        """Killed between two turns."""
        self.broker.restart()
        self.model.now = self.broker.now
        self.model.restart()

    @invariant()
    def model_and_broker_agree(self) -> None:
        if hasattr(self, "broker"):
            self.model.check(self.broker.core.stats("in", self.broker.now))

    def hello(self, name: str) -> Hello:
        return Hello(name=name, incarnation=str(self.incarnations[name]))


TestLeaseQueue = LeaseQueue.TestCase
TestLeaseQueue.settings = settings(stateful_step_count=50)
