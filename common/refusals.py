"""What a listener refused, by reason and by peer, until it is reported."""

import logging
from collections import Counter

import prometheus_client

log = logging.getLogger(__name__)

REPORT_S = 2.0
"""Between two reports of what was refused: a flood is one line each time."""
MAX_PEERS = 1_000
"""Peers that are told apart between two reports; refusals of more are counted under one name."""


class Refusals:
    """Memory is bounded whatever the peers do."""

    def __init__(self) -> None:
        self._by_peer: Counter[tuple[str, str]] = Counter()
        self._next_report = 0.0

    @property
    def counts(self) -> Counter[str]:
        """Refusals since the last report, by reason."""
        total: Counter[str] = Counter()
        for (reason, _), count in self._by_peer.items():
            total[reason] += count
        return total

    def add(self, reason: str, peer: str) -> None:
        """One more. `reason` is one of a few words, never the peer's text."""
        key = (reason, peer)
        self._by_peer[key if key in self._by_peer or len(self._by_peer) < MAX_PEERS else (reason, "many")] += 1

    def take(self) -> list[tuple[str, str, int]]:
        """(reason, peer, count) since the last call."""
        taken = [(reason, peer, count) for (reason, peer), count in self._by_peer.items()]
        self._by_peer.clear()
        return taken

    def report(self, metric: prometheus_client.Counter, now: float) -> None:
        """Count by reason and log by peer what was refused, if it is time."""
        if now < self._next_report:
            return
        self._next_report = now + REPORT_S
        for reason, peer, count in self.take():
            metric.labels(reason).inc(count)
            log.warning("refused", extra={"reason": reason, "peer": peer, "count": count})
