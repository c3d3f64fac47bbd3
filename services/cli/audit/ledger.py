"""The filter's side: which prompts were given, how each ended, which batch each went into.

Every event names the transaction `tx` (a version of the filter's register) that commits it. An event counts iff its
transaction was committed and no later incarnation wrote the same transaction: a filter that dies after writing an
event but before its commit is followed by one that writes that transaction anew.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.cli.audit.reading import Record, Stream


@dataclass(kw_only=True)
class Ledger:
    """What the filter committed."""

    min_version: dict[str, int] = field(default_factory=dict)
    """By issued id: no token of it may be older."""
    times_issued: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, list[str]] = field(default_factory=dict)
    """By id: every reason it was dropped for."""
    acknowledged: set[str] = field(default_factory=set)
    """Ids that the filter counts as trained."""
    batches: dict[int, list[str]] = field(default_factory=dict)
    """Ids by step."""
    times_batched: Counter[str] = field(default_factory=Counter)


def read_ledger(streams: Iterable[Stream], committed: int) -> Ledger:
    """The events that count, in order of their transaction."""
    ledger = Ledger()
    for record in effective(streams, committed):
        _enter(ledger, record)
    return ledger


def effective(streams: Iterable[Stream], committed: int) -> list[Record]:
    """The records of committed transactions, each from the last incarnation that wrote it."""
    by_tx: dict[int, list[Record]] = {}
    for stream in streams:
        mine: dict[int, list[Record]] = {}
        for record in stream.records:
            if "tx" in record:
                mine.setdefault(record["tx"], []).append(record)
        by_tx |= mine
    return [record for tx in sorted(by_tx) if tx <= committed for record in by_tx[tx]]


def _enter(ledger: Ledger, record: Record) -> None:
    if record["event"] == "issued" and not is_eval(record["id"]):
        ledger.times_issued[record["id"]] += 1
        ledger.min_version[record["id"]] = record["min_version"]
    elif record["event"] == "settled" and not is_eval(record["id"]):
        if record["fate"] == "trained":
            ledger.acknowledged.add(record["id"])
        else:
            ledger.dropped.setdefault(record["id"], []).append(record["reason"])
    elif record["event"] == "batched":
        ledger.batches[record["step"]] = list(record["ids"])
        ledger.times_batched.update(record["ids"])


def is_eval(name: str) -> bool:
    """Held-out prompts are never trained and have no fate."""
    return name.startswith("eval/")
