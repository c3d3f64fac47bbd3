"""The numbers of a run at a glance: tiles for one run, a table for two."""

import time
from collections.abc import Sequence
from html import escape

from services.cli.report.bars import table
from services.cli.report.curves import names
from services.cli.report.pipeline import idle_share
from services.cli.report.record import Record
from services.cli.report.scale import clock, short


def section(records: Sequence[Record]) -> str:
    """Tiles or table."""
    if len(records) == 1:
        tiles = "".join(
            f"<div class=tile><span>{escape(name)}</span><b>{escape(value)}</b></div>"
            for name, value in facts(records[0])
        )
        return f"<div class=tiles>{tiles}</div>"
    columns = [dict(facts(record)) for record in records]
    return table(
        ["", *names(records)], [[key, *(column[key] for column in columns)] for key in columns[0]], css="facts"
    )


def subtitle(record: Record) -> str:
    """Model, data and when it began."""
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.start)) if record.start else "not begun"
    data = record.tables.get("filter", {}).get("data", "")
    return f"{record.run.model} on {data if isinstance(data, str) else ', '.join(data)}, began {began}"


def facts(record: Record) -> list[tuple[str, str]]:
    """Name and value."""
    rows = record.rows
    return [
        ("held-out accuracy", _held_out(record)),
        ("steps", f"{_steps(record)} of {record.run.steps}"),
        ("reward", _change([row["reward"] for row in rows])),
        ("groups kept", _kept(record)),
        ("token age", _age(record)),
        ("samples per second", _samples(record)),
        ("learner idle", "-" if (idle := idle_share(record)) is None else f"{idle:.0%}"),
        ("training time", clock(record.training_s) if rows else "-"),
        ("tokens trained", short(sum(row["trained_tokens"] for row in rows))),
        ("restarts", str(restarts(record))),
        ("audit", _audit(record)),
    ]


def _steps(record: Record) -> int:
    return int(record.rows[-1]["step"]) + 1 if record.rows else 0


def _held_out(record: Record) -> str:
    ends = [*record.evals[:1], *record.evals[1:][-1:]]
    return " \N{RIGHTWARDS ARROW} ".join(f"{row['accuracy']:.3f}" for row in ends) or "not evaluated"


def _change(values: Sequence[float]) -> str:
    """The means of the first and of the last tenth."""
    if not values:
        return "-"
    size = max(1, len(values) // 10)
    first, last = sum(values[:size]) / size, sum(values[-size:]) / size
    return f"{first:.2f} \N{RIGHTWARDS ARROW} {last:.2f}"


def _kept(record: Record) -> str:
    rate = record.rows[-1].get("filter_keep_rate") if record.rows else None
    return "-" if rate is None else f"{rate:.0%}"


def _age(record: Record) -> str:
    tokens = sum(row["trained_tokens"] for row in record.rows)
    if not tokens:
        return "-"
    mean = sum(row["age_mean"] * row["trained_tokens"] for row in record.rows) / tokens
    greatest = max(row["age_max"] for row in record.rows)
    return f"mean {mean:.2f}, greatest {greatest:g} of {record.run.max_staleness}"


def _samples(record: Record) -> str:
    number = sum(len(g.lengths) for g in record.groups if g.scored and not g.is_held_out)
    return f"{number / record.training_s:.1f}" if number and record.training_s else "-"


def restarts(record: Record) -> int:
    """Processes that the supervisor started again."""
    return sum(
        event["event"] == "restarted" for stream in record.streams if stream.role == "supervisor"
        for event in stream.records
    )  # fmt: skip


def _audit(record: Record) -> str:
    if record.running:
        return "still running"
    if record.account is None:
        return "no history"
    return "passed" if record.account["ok"] else f"{len(record.account['violations'])} violations"
