"""Which prompts are asked, and what their groups teach."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.panels import Panel, Query, build

GROUPS = "dapo_reward_pass_rate_ratio_bucket"
SPANS = (("all wrong", None, "0.0"), ("up to 25 %", "0.0", "0.25"), ("25 to 50 %", "0.25", "0.5"),
         ("50 to 75 %", "0.5", "0.75"), ("above 75 %", "0.75", "0.999"), ("all right", "0.999", "1.0"))  # fmt: skip
"""Name, bound below which and bound up to which a pass rate belongs to it."""


def pass_rates() -> list[Query]:
    """The share of the judged groups in each span of pass rates."""

    def seen(bound: str) -> str:
        return f'sum(rate({GROUPS}{{le="{bound}"}}[$__rate_interval]))'

    whole = seen("1.0")
    parts = [
        (name, seen(above) if below is None else f"({seen(above)} - {seen(below)})") for name, below, above in SPANS
    ]
    return [Query(f"{part} / {whole}", name) for name, part in parts]


def category(what: str) -> list[Query]:
    """A number of every category; one line without a name where the sampler has none."""
    return [Query(f'sum by (category) (dapo_filter_category_ratio{{what="{what}"}}) or on() vector(0)', "{{category}}")]


def dashboard() -> Dashboard:
    """Dynamic and adaptive sampling."""
    dropped = [
        Panel(title="Pass rates of the groups", unit="percentunit", high=1.0, stacked=True, width=12,
              about="Share of the judged groups by the share of right answers. All wrong and all right teach nothing "
              "and are dropped.", queries=pass_rates()),
        Panel(title="What became of the groups", stacked=True, width=12,
              about="Trained and dropped by reason, per second.",
              queries=[Query('deriv(dapo_filter_groups{fate="trained"}[1m]) >= 0', "trained"),
                       Query('(deriv(dapo_filter_groups{fate="dropped"}[1m]) >= 0) and '
                             '(dapo_filter_groups{fate="dropped"} > 0) or on() vector(0)', "{{reason}}")]),
        Panel(title="Groups so far", about="By what became of them.",
              queries=[Query('dapo_filter_groups{fate=~"issued|trained"}', "{{fate}}"),
                       Query('sum(dapo_filter_groups{fate="dropped"})', "dropped")]),
        Panel(title="Groups kept", unit="percentunit", high=1.0, about="Of the last 100 judged.",
              queries=[Query("max(dapo_filter_recent_keep_rate_ratio)", "kept")]),
        Panel(title="Age of a group in its batch", unit="none", about="Mean of the groups' oldest tokens, in versions.",
              queries=[Query("sum(rate(dapo_filter_age_versions_sum[$__rate_interval])) "
                             "/ (sum(rate(dapo_filter_age_versions_count[$__rate_interval])) > 0)", "mean")]),
    ]  # fmt: skip
    categories = [
        Panel(title="Probability of each category", unit="percentunit", width=8, stacked=True, high=1.0,
              about="Of being drawn, with an adaptive sampler.", queries=category("probability")),
        Panel(title="Pass rate by category", unit="percentunit", high=1.0, about="Moving average of its groups.",
              queries=category("pass_rate")),
        Panel(title="Reward variance by category", about="Moving average of its groups: where there is signal.",
              queries=category("reward_variance")),
        Panel(title="Rows", unit="none", about="Of the training data, by what became of them when they were read.",
              queries=[Query("dapo_filter_rows", "{{fate}}")]),
    ]  # fmt: skip
    rows = [("Dynamic sampling", dropped), ("Adaptive sampling", categories)]
    return build("Sampling", "dapo-sampling", "Which prompts are asked, and what do their groups teach?", rows)
