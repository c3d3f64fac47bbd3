"""What watchers are told of a queue."""

from collections.abc import Iterable

import msgspec

from common.protocol import QueueStats
from services.broker.state import Queue, Session


def stats_of(queue: Queue, sessions: Iterable[Session], name: str, wall: float) -> QueueStats:
    """What is in a queue, and what the sessions would take from it at once."""
    oldest = queue.oldest()
    return QueueStats(
        ready=queue.num_ready,
        leased=queue.num_leased,
        credit=sum(session.room(name) for session in sessions),
        oldest_s=max(0.0, wall - oldest.given_at) if oldest else 0.0,
        dead=[item.id for item in queue.dead.values()],
    )


def are_news(new: QueueStats, old: QueueStats | None) -> bool:
    """Whether a watcher should hear of it; the age of the oldest item alone is no news."""
    return old is None or msgspec.structs.replace(new, oldest_s=0.0) != msgspec.structs.replace(old, oldest_s=0.0)
