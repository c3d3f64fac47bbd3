"""Panels of the dashboards, with one look: lines, stacked lines, single numbers.

Every query goes to one data source, whose uid is fixed here and in provisioning/datasources/prometheus.yaml, so that a
provisioned dashboard finds it without asking anybody.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as look
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef

UID = "dapo-prometheus"
SOURCE = DataSourceRef(type_val="prometheus", uid=UID)
LEAST_SHARE = 0.02
"""To which an axis of shares reaches at least: without it Grafana draws a line of zeros on an axis up to 10000 %."""


@dataclass(frozen=True)
class Query:
    """A query and the name of its series; `{{label}}` is replaced by a label."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What a panel shows."""

    title: str
    about: str
    """What it means, and what to do about it; under the panel's i."""
    queries: Sequence[Query]
    unit: str = "short"
    """Grafana's name of the unit: `s`, `percentunit`, `bytes` ..."""
    low: float | None = 0.0
    high: float | None = None
    room: float | None = None
    """The axis reaches up to this at least."""
    stacked: bool = False
    logarithmic: bool = False
    width: int = 8
    height: int = 8
    number: bool = False
    """A single number with its recent course."""
    decimals: int | None = None


def value(name: str) -> str:
    """A number of the newest step, by its name in metrics.jsonl."""
    return f'dapo_learner_value{{name="{name}"}}'


def rate(counter: str, by: str = "", labels: str = "") -> str:
    """How much a counter grows per second, added up over the processes."""
    return f"sum {f'by ({by}) ' if by else ''}(rate({counter}{labels}[$__rate_interval]))"


def quantile(histogram: str, share: float, by: str = "") -> str:
    """A quantile of what a histogram saw lately."""
    keys = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({keys}) (rate({histogram}_bucket[$__rate_interval])))"


def build(name: str, uid: str, about: str, rows: Sequence[tuple[str, Sequence[Panel]]]) -> dashboard.Dashboard:
    """A dashboard of titled rows; panels flow from left to right."""
    board = (
        dashboard.Dashboard(f"dapo: {name}")
        .uid(uid)
        .description(about)
        .tags(["dapo"])
        .refresh("5s")
        .time("now-1h", "now")
        .timezone("browser")
        .readonly()
        .link(
            dashboard.DashboardLink("dapo")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["dapo"])
            .as_dropdown(True)
            .keep_time(True)
        )
    )
    place = itertools.count(1)
    for title, panels in rows:
        board = board.with_row(dashboard.Row(title).id(next(place)))
        for panel in panels:
            built = _number(panel) if panel.number else _lines(panel)
            board = board.with_panel(built.id(next(place)))
    return board


def _targets(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto").ref_id(chr(ord("A") + place))
        for place, query in enumerate(panel.queries)
    ]


def _lines(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.about)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(panel.height)
        .line_width(1.5)
        .fill_opacity(45 if panel.stacked else 6)
        .show_points(common.VisibilityMode.NEVER)
        .span_nulls(True)
        .tooltip(look.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .legend(
            look.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if panel.stacked:
        built = built.stacking(look.StackingConfig().mode(common.StackingMode.NORMAL))
    if panel.logarithmic:
        built = built.scale_distribution(
            look.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
        )  # fmt: skip
    for target in _targets(panel):
        built = built.with_target(target)
    return _bounded(built, panel)


def _bounded(built: timeseries.Panel, panel: Panel) -> timeseries.Panel:
    if panel.low is not None and not panel.logarithmic:
        built = built.min(panel.low)
    if panel.high is not None:
        built = built.max(panel.high)
    elif panel.room is not None or panel.unit == "percentunit":
        built = built.axis_soft_max(panel.room or LEAST_SHARE)
    return built if panel.decimals is None else built.decimals(panel.decimals)


def _number(panel: Panel) -> stat.Panel:
    built = (
        stat.Panel()
        .title(panel.title)
        .description(panel.about)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(panel.height)
        .graph_mode(common.BigValueGraphMode.AREA)
        .color_mode(common.BigValueColorMode.VALUE)
        .reduce_options(look.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    for target in _targets(panel):
        built = built.with_target(target)
    return built if panel.decimals is None else built.decimals(panel.decimals)
