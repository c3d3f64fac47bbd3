"""What an audit reads: the event streams of all process incarnations, the broker's SQLite file, the configuration.

    RUN/history/ROLE-REPLICA-NANOSECONDS.msgpack   -> Stream, in order of their start
    RUN/broker.db                                  -> Queues
    RUN/config.toml                                -> Limits

A torn last record (power loss) is ignored; anything else that does not decode is damage, and reported.
"""

import sqlite3
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

Record = dict[str, Any]
TRAIN_QUEUES = ("prompts", "groups", "scored")


class NothingToAudit(Exception):
    """The folder is not a run folder; the text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The events of one incarnation of one process."""

    name: str
    """File name without its end."""
    role: str
    records: list[Record]
    damage: str = ""
    """What did not decode, if anything."""


@dataclass(frozen=True, kw_only=True)
class Queues:
    """What the broker holds, and what it has committed."""

    live: dict[str, list[str]] = field(default_factory=dict)
    """Unsettled item ids by queue."""
    dead: dict[str, list[str]] = field(default_factory=dict)
    """Dead letters by queue."""
    registers: dict[str, int] = field(default_factory=dict)
    """Version by register."""
    once_dead: set[str] = field(default_factory=set)
    """Ids that were dead letters at some time, whatever a person decided about them later."""
    retried: set[str] = field(default_factory=set)
    """Those that were put back into their queue."""

    def of(self, queue: str) -> list[str]:
        """Unsettled ids of one queue."""
        return self.live.get(queue, [])


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the run promised."""

    max_staleness: int
    masks: bool
    """Whether tokens that are too old are masked, so that a batch may contain them."""


def read_streams(run: Path, role: str = "*") -> list[Stream]:
    """All streams, or those of one role, in the order in which the incarnations began."""
    paths = sorted((run / "history").glob(f"{role}-*.msgpack"), key=lambda path: path.stem.rpartition("-")[2])
    if not paths:
        raise NothingToAudit(f"{run} has no history: give the folder of a run that has started")
    return [_read_stream(path) for path in paths]


def read_queues(run: Path) -> Queues:
    """The broker's items and register versions."""
    path = run / "broker.db"
    if not path.exists():
        raise NothingToAudit(f"{path} does not exist: give the folder of a run that has started")
    queues = Queues()
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for queue, name, dead in database.execute("SELECT queue, id, dead FROM items ORDER BY seq"):
            (queues.dead if dead else queues.live).setdefault(queue, []).append(name)
        queues.registers.update(database.execute("SELECT name, version FROM registers"))
    finally:
        database.close()
    return queues


def read_decisions(streams: Iterable[Stream], queues: Queues) -> None:
    """What the broker's history adds to its queues: the dead letters that a person has decided about."""
    for stream in streams:
        for record in stream.records:
            if record["event"] in ("dead", "dropped"):
                queues.once_dead.add(record["id"])
            elif record["event"] == "retried":
                queues.retried.add(record["id"])


def read_limits(run: Path) -> Limits:
    """The bound on age."""
    path = run / "config.toml"
    if not path.exists():
        raise NothingToAudit(f"{path} does not exist: give the folder of a run that `dapo run` has started")
    table = tomllib.loads(path.read_text(encoding="utf-8")).get("run", {})
    return Limits(max_staleness=int(table.get("max_staleness", 1)), masks=table.get("on_stale") == "mask")


def _read_stream(path: Path) -> Stream:
    name, damage = path.stem, ""
    records: list[Record] = []
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, strict_map_key=False)
        try:
            while True:
                record = unpacker.unpack()
                if not isinstance(record, dict) or "event" not in record:
                    raise ValueError(f"record {len(records)} is not an event")
                records.append(record)
        except msgpack.OutOfData:
            pass
        except (ValueError, msgpack.UnpackException) as error:
            damage = f"{path.name}: {error or type(error).__name__} after {len(records)} records"
    return Stream(name=name, role=name.partition("-")[0], records=records, damage=damage)
