"""How old is what is trained, and how long are the answers that are generated, trained and dropped?"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from services.cli.report.bars import histogram_lines, table
from services.cli.report.charts import Limit, Line, Look, Point, figure, line_chart
from services.cli.report.curves import Curve, curves, names
from services.cli.report.groups import DROPPED, TRAINED, Group, lengths
from services.cli.report.record import Record
from services.cli.report.scale import quantile, short

BINS = 32
FATES = (("generated", None), ("trained", TRAINED), ("dropped", DROPPED))


def ages(records: Sequence[Record]) -> str:
    """Ages of tokens by step, and of groups at the end."""
    wanted = [Curve("mean", "age_mean"), Curve("greatest", "age_max", noisy=False)]
    limit = max(record.run.max_staleness for record in records)
    look = Look(low=0.0, high=limit + 0.5, limit=Limit(limit, "max_staleness"))
    return line_chart("Age of the trained tokens", curves(records, wanted), look,
                      note="In policy versions. The bound holds by construction; a mean near it means that the learner "
                      "is the bottleneck.") + _age_table(records)  # fmt: skip


def _age_table(records: Sequence[Record]) -> str:
    found = [group_ages(record.groups) for record in records]
    top = max((max(each, default=0) for each in found), default=0)
    head = ["age of a group", *names(records)]
    rows = [[str(age), *(_share(each.count(age), len(each)) for each in found)] for age in range(top + 1)]
    if not any(found):
        return ""
    return figure("Groups by age", table(head, rows, css="numbers"), note="By the oldest token of each trained group.")


def group_ages(groups: Iterable[Group]) -> list[int]:
    """Of every trained group: its step less the oldest version that sampled it."""
    return [g.step - g.oldest for g in groups if g.step is not None and g.oldest is not None and g.trained]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def by_fate(records: Sequence[Record]) -> str:
    """Lengths as histograms, over the steps, and as a table."""
    return "".join((*(_histogram(records, run) for run in range(len(records))), *_over_steps(records),
                    _length_table(records)))  # fmt: skip


def _histogram(records: Sequence[Record], run: int) -> str:
    record = records[run]
    named = [(name, [float(n) for n in lengths(record.groups, fate)], place)
             for place, (name, fate) in enumerate(FATES) if fate]  # fmt: skip
    top = max((max(values, default=0.0) for _, values, _ in named), default=0.0)
    title = "Lengths" if len(records) == 1 else f"Lengths, {names(records)[run]}"
    lines = histogram_lines(named, low=0.0, high=top + 1, bins=min(BINS, int(top) + 1))
    return line_chart(title, lines, Look(low=0.0, x_name="response tokens"),
                      note="Share of the samples by their response tokens. Where the shapes differ, dropping groups "
                      "prefers a length.")  # fmt: skip


def _over_steps(records: Sequence[Record]) -> list[str]:
    """The mean length by the version that began the group, for each fate."""
    charts = []
    for run, record in enumerate(records):
        lines = [Line(name, mean_lengths(record.groups, _is(fate)), place) for place, (name, fate) in enumerate(FATES)]
        title = "Mean length by fate" if len(records) == 1 else f"Mean length by fate, {names(records)[run]}"
        charts.append(line_chart(title, lines, Look(low=0.0, x_name="policy version"),
                                 note="Of groups by the oldest policy version that sampled them."))  # fmt: skip
    return charts


def _is(fate: str | None) -> Callable[[Group], bool]:
    return lambda group: fate in (None, group.fate)


def mean_lengths(groups: Iterable[Group], wanted: Callable[[Group], bool]) -> list[Point]:
    """(version, mean response tokens of its samples)."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for group in groups:
        if group.oldest is not None and not group.is_held_out and wanted(group):
            found[group.oldest] += group.lengths
    return [(version, sum(each) / len(each)) for version, each in sorted(found.items()) if each]


def _length_table(records: Sequence[Record]) -> str:
    rows = []
    for run, record in enumerate(records):
        for name, fate in FATES:
            values = [float(n) for n in lengths(record.groups, fate)]
            title = name if len(records) == 1 else f"{names(records)[run]}: {name}"
            mean = sum(values) / len(values) if values else 0.0
            spread = [quantile(values, share) for share in (0.5, 0.95, 1.0)]
            rows.append([title, f"{len(values)}", *(short(round(n, 1)) for n in (mean, *spread))])
    head = ["response tokens", "samples", "mean", "median", "95 %", "longest"]
    return figure("Lengths in numbers", table(head, rows, css="numbers"))
