"""The adaptive prompt sampler: which categories it drew from, and what they gave. As `dapo sampling` draws it."""

from collections.abc import Sequence

from services.cli import sampling_plot as plot
from services.cli.report.charts import Band, Limit, Line, Look, line_chart, stacked
from services.cli.report.curves import names
from services.cli.report.record import Record
from services.cli.snapshot import Row


def section(records: Sequence[Record]) -> str:
    """The charts of every run that has a record."""
    return "".join(
        _of_one(record.sampling, "" if len(records) == 1 else f", {names(records)[run]}")
        for run, record in enumerate(records)
        if record.sampling
    )


def _of_one(rows: Sequence[Row], of: str) -> str:
    found = plot.most_drawn(rows)
    bands = [
        Band(first, end, f"{name} \N{GREEK SMALL LETTER TAU} = {t:g}") for name, t, first, end in plot.stages(rows)
    ]
    return "".join((_probability(rows, found, bands, of), _draws(rows, found, of),
                    _rate(rows, found, ("correct", "answers"), f"Right answers{of}"),
                    _rate(rows, found, ("kept", "judged"), f"Groups kept{of}")))  # fmt: skip


def _probability(rows: Sequence[Row], found: Sequence[str], bands: Sequence[Band], of: str) -> str:
    lines = [
        Line(name, [(row["step"], row["categories"][name]["probability"]) for row in rows], place)
        for place, name in enumerate(found)
    ]
    least = rows[0]["least_share"]
    look = Look(log=True, low=least / 1.5, high=1.0, limit=Limit(least, "least share"), bands=bands)
    return line_chart(f"Probability of each category{of}", lines, look,
                      note="Shades are the stages of the sampler, with their temperature.")  # fmt: skip


def _draws(rows: Sequence[Row], found: Sequence[str], of: str) -> str:
    parts = plot.share_of_draws(rows, found)
    labels = [*found, "others"] if len(found) < len(rows[0]["categories"]) else list(found)
    steps = [float(row["step"]) for row in rows]
    named = [(name, list(zip(steps, part, strict=True)), min(place, 7))
             for place, (name, part) in enumerate(zip(labels, parts, strict=False))]  # fmt: skip
    return line_chart(f"Share of the prompts drawn{of}", stacked(named), Look(low=0.0, high=1.0),
                      note=f"Mean of {plot.WINDOW} steps.")  # fmt: skip


def _rate(rows: Sequence[Row], found: Sequence[str], of: tuple[str, str], title: str) -> str:
    lines = [
        Line(name, list(zip(*plot.rates(rows, name, of=of), strict=True)), place) for place, name in enumerate(found)
    ]
    return line_chart(title, lines, Look(low=0.0, high=1.0), note=f"Mean of {plot.WINDOW} steps, by category.")
