"""Dynamic sampling: what became of the groups that were judged, and how often their answers were right."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from services.cli.report.bars import histogram_lines, table
from services.cli.report.charts import Look, Point, figure, line_chart, stacked
from services.cli.report.curves import names, of_each
from services.cli.report.groups import DROPPED, OPEN, TRAINED, Group
from services.cli.report.record import Record

COLOURS = {TRAINED: 2, "all_correct": 0, "all_wrong": 5}
OTHERS = 6
WINDOW = 5
"""Policy versions over which shares are averaged."""


def section(records: Sequence[Record]) -> str:
    """The charts and the table."""
    kept = line_chart("Keep rate", of_each(records, lambda record: record.column("filter_recent_keep_rate")),
                      Look(low=0.0, high=1.0), note="Share kept of the last 100 groups judged.")  # fmt: skip
    return "".join((kept, *(_fates(records, run) for run in range(len(records))),
                    *(_pass_rates(records, run) for run in range(len(records))), _table(records)))  # fmt: skip


def _titled(title: str, records: Sequence[Record], run: int) -> str:
    return title if len(records) == 1 else f"{title}, {names(records)[run]}"


def _fates(records: Sequence[Record], run: int) -> str:
    shares = fate_shares(records[run].groups)
    named = [(name, points, COLOURS.get(name, OTHERS)) for name, points in shares.items()]
    return line_chart(_titled("What became of the groups", records, run), stacked(named),
                      Look(low=0.0, high=1.0, x_name="policy version"),
                      note="Share of the judged groups, by the policy version that began them.")  # fmt: skip


def fate_shares(groups: Iterable[Group]) -> dict[str, list[Point]]:
    """(version, share over the last `WINDOW` versions) by fate or reason of the drop; the trained first."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for group in groups:
        if group.fate != OPEN and group.oldest is not None and not group.is_held_out:
            counts[group.oldest][_kind(group)] += 1
    versions = sorted(counts)
    windows = [
        sum((counts[v] for v in versions[max(0, k + 1 - WINDOW) : k + 1]), Counter()) for k in range(len(versions))
    ]
    kinds = [kind for kind in (*COLOURS, "other") if any(kind in window for window in windows)]
    return {kind: [(v, w[kind] / w.total()) for v, w in zip(versions, windows, strict=True)] for kind in kinds}


def _kind(group: Group) -> str:
    if group.fate == TRAINED:
        return TRAINED
    return group.reason if group.reason in COLOURS else "other"


def _pass_rates(records: Sequence[Record], run: int) -> str:
    early, late = pass_rates(records[run].groups)
    size = records[run].run.group_size
    lines = histogram_lines([("first third", early, 0), ("last third", late, 1)], low=0.0, high=1.0 + 1 / size,
                            bins=size + 1)  # fmt: skip
    return line_chart(_titled("Pass rates", records, run), lines, Look(low=0.0, x_name="pass rate of a group"),
                      note="Share of the groups judged, by the share of right answers. The ends, 0 and 1, teach "
                      "nothing and are dropped.")  # fmt: skip


def pass_rates(groups: Iterable[Group]) -> tuple[list[float], list[float]]:
    """Of the first and of the last third of the training groups that were judged."""
    rates = [g.pass_rate for g in groups if not g.is_held_out and g.pass_rate is not None]
    third = len(rates) // 3
    return rates[:third], rates[-third:] if third else []


def _table(records: Sequence[Record]) -> str:
    counts = [Counter(_name(g) for g in record.groups if not g.is_held_out) for record in records]
    kinds = sorted({kind for count in counts for kind in count}, key=lambda kind: (kind != TRAINED, kind))
    rows = [[kind, *(_with_share(count, kind) for count in counts)] for kind in kinds]
    return figure("Groups in numbers", table(["", *names(records)], rows, css="numbers"))


def _name(group: Group) -> str:
    names = {DROPPED: f"dropped: {group.reason}", OPEN: "under way at the end"}
    return names.get(group.fate, group.fate)


def _with_share(count: Counter[str], kind: str) -> str:
    return f"{count[kind]} ({count[kind] / count.total():.1%})" if count.total() else "0"
