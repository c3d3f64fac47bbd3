"""What the run was told, and what its services complained about."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from common import config
from common.config import Tree
from services.cli.processes import read_sections
from services.cli.report.bars import table
from services.cli.report.charts import figure
from services.cli.report.curves import names
from services.cli.report.record import Record

SHOWN = 12
"""Kinds of complaints."""
UNSET = "-"


def section(records: Sequence[Record]) -> str:
    """The changed values in view, all of them behind a fold."""
    flat = [_flat(record.tables) for record in records]
    standard = _flat(defaults(records[0]))
    changed = [key for key in flat[0] | flat[-1] if any(each.get(key) != standard.get(key) for each in flat)]
    differing = [key for key in flat[0] | flat[-1] if flat[0].get(key) != flat[-1].get(key)]
    shown, title = (differing, "Where the runs differ") if len(records) > 1 else (changed, "Changed from the defaults")
    every = _table(records, flat, sorted(flat[0] | flat[-1]))
    return (
        figure(title, _table(records, flat, sorted(shown)), wide=True)
        + f"<details><summary>The whole configuration <small>{len(flat[0])} values</small></summary>{every}</details>"
    )


def complaints(records: Sequence[Record]) -> str:
    """Warnings and errors of the services, counted."""
    counts = Counter((str(row.get("service")), str(row.get("level")), str(row.get("event")))
                     for record in records for row in record.logs)  # fmt: skip
    if not counts:
        return "<p class=note>No service has logged a warning or an error.</p>"
    rows = [[service, level, event[:200], str(count)] for (service, level, event), count in counts.most_common(SHOWN)]
    left = len(counts) - len(rows)
    more = f"<p class=note>{escape(str(left))} further kinds are in logs/.</p>" if left > 0 else ""
    return table(["service", "level", "what", "times"], rows) + more


def defaults(record: Record) -> dict[str, Any]:
    """The configuration of a run that only says what it must."""
    required = {"run": {"name": record.run.name, "model": record.run.model}, "filter": {"data": "-"}}
    return config.resolved(read_sections(Tree(path=record.folder / "config.toml", tables=required)))


def _table(records: Sequence[Record], flat: Sequence[Mapping[str, str]], keys: Sequence[str]) -> str:
    rows = [[key, *(each.get(key, UNSET) for each in flat)] for key in keys]
    return table(["", *names(records)], rows, css="settings") if rows else "<p class=note>nothing</p>"


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return found
