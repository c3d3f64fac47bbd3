"""What the broker shows of itself, in every tick."""

from prometheus_client import Counter, Gauge

from services.broker.core import Core

ITEMS = Gauge("dapo_queue_items", "Unsettled items of a queue.", ["queue", "state"])
OLDEST = Gauge("dapo_queue_oldest_seconds", "Age of the oldest unsettled item of a queue.", ["queue"])
GIVEN = Counter("dapo_broker_given_total", "Items given.")
SETTLED = Counter("dapo_broker_settled_total", "Items settled.")
EXPIRED = Counter("dapo_broker_leases_expired_total", "Leases that ended because their holder fell silent.")
REFUSED = Counter("dapo_broker_refused_total", "Messages refused.", ["reason"])


def show(core: Core, now: float, wall: float) -> None:
    """Show the queues and what happened since the last call; changes nothing but the counters that it has taken."""
    ledger = core.ledger
    for name, queue in ledger.queues.items():
        ITEMS.labels(name, "ready").set(queue.num_ready)
        ITEMS.labels(name, "leased").set(queue.num_leased)
        ITEMS.labels(name, "dead").set(len(queue.dead))
        OLDEST.labels(name).set(core.stats(name, wall).oldest_s)
    GIVEN.inc(ledger.num_given)
    SETTLED.inc(ledger.num_settled)
    EXPIRED.inc(ledger.num_expired)
    ledger.num_given = ledger.num_settled = ledger.num_expired = 0
    core.refused.report(REFUSED, now)
