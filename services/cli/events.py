"""The last things that happened in a run, for people: restarts, evaluations, warnings and errors of the services.

history/supervisor-*, evals.jsonl, logs/*.jsonl  ->  Event, the newest last
"""

import calendar
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from services.cli.audit.reading import NothingToAudit, Stream, read_streams
from services.cli.snapshot import Row, read_evals, read_rows

LOUD = ("warning", "error", "critical")


class Event(NamedTuple):
    """One thing that happened."""

    time: float
    """Unix seconds."""
    who: str
    text: str


def last_events(folder: Path, count: int) -> list[Event]:
    """The newest `count`, in order."""
    found = [*_supervised(folder), *_evaluated(folder), *(event for event, _ in logged(folder, tail=True))]
    return sorted(found)[-count:]


def logged(folder: Path, *, tail: bool = False) -> list[tuple[Event, Row]]:
    """Lines of level warning and above of all services, in order of time; `tail`: only of the end of each log."""
    rows = [row for path in (folder / "logs").glob("*.jsonl") for row in read_rows(path, tail=tail)]
    loud = [(_event(row), row) for row in rows if row.get("level") in LOUD]
    return sorted(loud, key=lambda pair: pair[0])


def _event(row: Row) -> Event:
    cause = row.get("cause") or row.get("message_text") or ""
    text = f"{row.get('event', '')}{': ' if cause else ''}{cause}"
    return Event(_seconds(str(row.get("time", ""))), str(row.get("service", "")), text)


def _seconds(text: str) -> float:
    """Of a log's time stamp; 0 if it is none."""
    try:
        whole = time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0.0
    return calendar.timegm(whole) + float(f"0{text[19:23]}" if text[19:20] == "." else 0)


def _supervised(folder: Path) -> Iterator[Event]:
    for stream in _streams(folder):
        for record in stream.records:
            if record["event"] == "died" and record["status"]:
                yield Event(record["time"], record["name"], f"ended with status {record['status']}")
            elif record["event"] == "restarted":
                yield Event(record["time"], record["name"], "started again")


def _streams(folder: Path) -> list[Stream]:
    try:
        return read_streams(folder, "supervisor")
    except NothingToAudit:
        return []


def _evaluated(folder: Path) -> Iterator[Event]:
    for row in read_evals(folder):
        yield Event(
            row.get("time", 0.0), "filter-0", f"held-out accuracy {row['accuracy']:.3f}, version {row['version']}"
        )
