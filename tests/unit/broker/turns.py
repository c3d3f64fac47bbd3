"""A broker core on a disk, spoken to one message a turn."""

from pathlib import Path

from common.gate import NOBODY
from common.protocol import Bye, Deliver, Done, FromBroker, Give, Hello, Offer, Ping, Take, ToBroker, encoder
from services.broker.core import Core
from services.broker.journal import open_journal

LEASE_S = 10.0


class Broker:
    """A core on a disk, spoken to one message a turn."""

    def __init__(self, folder: Path, *, max_deliveries: int | None = None) -> None:
        self.folder = folder
        self.max_deliveries = max_deliveries
        self.now = 100.0
        self.origin = NOBODY
        self.open()

    def open(self) -> None:
        self.journal = open_journal(self.folder, durability="process", segment_bytes=1 << 16)
        self.core = Core(
            self.journal, incarnation="b", heartbeat_s=1.0, lease_s=LEASE_S, now=self.now,
            max_deliveries=lambda _: self.max_deliveries,
        )  # fmt: skip

    def restart(self) -> None:
        self.journal.close()
        self.open()

    def turn(self, *messages: tuple[str, list[bytes]]) -> dict[str, list[FromBroker]]:
        """One turn; what is sent, by peer."""
        self.journal.begin()
        for peer, parts in messages:
            self.core.receive(peer.encode(), parts, now=self.now, wall=self.now, origin=self.origin)
        self.core.tick(self.now)
        self.core.deliver(self.now, self.now)
        self.journal.commit()
        sent: dict[str, list[FromBroker]] = {}
        for peer, message, _ in self.core.outbox:
            sent.setdefault(peer.decode(), []).append(message)
        self.core.outbox.clear()
        return sent

    def say(self, peer: str, message: ToBroker, *frames: bytes) -> list[FromBroker]:
        return self.turn((peer, [*self.parts(message), *frames])).get(peer, [])

    @staticmethod
    def parts(message: ToBroker) -> list[bytes]:
        return [encoder.encode(message)]

    def join(self, name: str, *, incarnation: str = "1", **windows: int) -> list[FromBroker]:
        """Hello, the first ping and the takes; what was delivered."""
        self.say(name, Hello(name=name, incarnation=incarnation))
        self.say(name, Ping())
        return [m for queue, window in windows.items() for m in self.say(name, Take(queue=queue, window=window))]

    def give(self, *ids: str, queue: str = "q") -> None:
        """From a client of its own."""
        self.join("giver")
        offers = [Offer(queue=queue, id=name, frames=0) for name in ids]
        assert self.say("giver", Give(request=1, acked=1, offers=offers)) == [Done(request=1)]
        self.say("giver", Bye())


def deliver(name: str, lease: int, delivery: int = 1) -> Deliver:
    return Deliver(queue="q", id=name, lease=lease, delivery=delivery)
