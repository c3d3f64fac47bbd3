"""Charts as SVG."""

import json
import re
from html import unescape
from typing import Any

import pytest

from services.cli.report.bars import histogram, share_bars, table
from services.cli.report.charts import MAX_POINTS, Limit, Line, Look, line_chart, stacked, thinned


def data(chart: str) -> dict[str, Any]:
    found = re.search(r"data-chart='([^']*)'", chart)
    assert found
    return json.loads(unescape(found[1]))


def test_a_line_goes_from_corner_to_corner() -> None:
    chart = line_chart("T", [Line("a", [(0, 0.0), (10, 1.0)])], Look(low=0.0, high=1.0))
    assert 'd="M50.0 206.0L410.0 8.0"' in chart
    assert data(chart)["s"] == [{"n": "a", "c": 0, "p": [[0, 0], [10, 1]]}]


def test_no_points_no_chart() -> None:
    assert line_chart("T", [Line("a", [])]) == ""
    assert line_chart("T", [Line("a", [(0, float("nan"))])]) == ""


def test_one_point_is_a_mark() -> None:
    assert "<circle" in line_chart("T", [Line("a", [(3, 0.5)])])


def test_values_that_cannot_be_drawn_are_left_out() -> None:
    assert thinned([(0, 1.0), (1, float("inf")), (2, 0.0)]) == [(0, 1.0), (2, 0.0)]
    assert thinned([(0, 1.0), (2, 0.0)], log=True) == [(0, 1.0)]


def test_a_long_line_is_averaged() -> None:
    points = [(float(k), float(k)) for k in range(4 * MAX_POINTS)]
    short = thinned(points)
    assert len(short) == MAX_POINTS
    assert short[0] == (1.5, 1.5)  # the mean of 0, 1, 2, 3


def test_names_are_escaped() -> None:
    chart = line_chart("<T>", [Line("<script>'", [(0, 1), (1, 2)])], Look(limit=Limit(1, "<b>")))
    assert "<script>" not in chart
    assert "<b>" not in chart
    assert data(chart)["s"][0]["n"] == "<script>'"


def test_a_stack_tells_its_own_values_and_draws_sums() -> None:
    lines = stacked([("a", [(0, 1.0), (1, 2.0)], 0), ("b", [(0, 3.0), (1, 4.0)], 1)])
    assert [(line.name, line.points) for line in lines] == [
        ("b", [(0, 4.0), (1, 6.0)]), ("a", [(0, 1.0), (1, 2.0)]),
    ]  # fmt: skip
    assert [series["p"] for series in data(line_chart("T", lines))["s"]] == [[[0, 3], [1, 4]], [[0, 1], [1, 2]]]


def test_a_histogram_has_the_share_of_each_bin() -> None:
    # 1 and 2 in [0, 2.5), 4 and 5 in [2.5, 5], whose end counts to the last bin
    assert histogram([1, 2, 4, 5], low=0, high=5, bins=2) == [(0, 0.0), (0, 0.5), (2.5, 0.5), (5, 0.5)]
    assert histogram([], low=0, high=1, bins=2) == []


def test_bars_have_the_parts_of_the_whole() -> None:
    bars = share_bars([("learner", {"busy": 3.0, "starved": 1.0})], {"busy": "busy", "starved": "starved"})
    assert 'style="width:75.00%"' in bars
    assert 'style="width:25.00%"' in bars


@pytest.mark.parametrize("text", ["<i>", "a & b"])
def test_tables_are_escaped(text: str) -> None:
    assert text not in table([text], [[text]])
