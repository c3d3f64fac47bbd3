"""The account as metrics: what became of the groups, how many are kept, how old they are when they are trained.

The gauges are set from the state, so they go on where they were after a restart:

    issued = trained + sum over reasons of dropped + dispatched + accepted + batched
"""

import logging
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

from common.config import RunConfig
from common.messages import RunState
from services.filter.dynamic_sampling import REMEDIES
from services.filter.sampling.state import SamplerState
from services.filter.state import RECENT, FilterState

log = logging.getLogger(__name__)

NONE_OF = 12
"""Groups of which none is kept are enough for the alarm: with a keep rate of 0.3 a chance of one in a hundred."""

GROUPS = Gauge("dapo_filter_groups", "Groups by what became of them, and why.", ["fate", "reason"])
OUTSTANDING = Gauge("dapo_filter_outstanding_groups", "Groups issued and neither trained nor dropped.")
POOL = Gauge("dapo_filter_pool_groups", "Accepted groups that wait for their batch.")
KEEP_RATE = Gauge("dapo_filter_keep_rate_ratio", "Share of decided groups that were kept.")
RECENT_KEEP_RATE = Gauge("dapo_filter_recent_keep_rate_ratio", f"Share kept of the last {RECENT} groups judged.")
LOW_KEEP_RATE = Gauge("dapo_filter_low_keep_rate", "1 while too few of the last groups judged are kept.")
BATCHES_CLOSED = Counter("dapo_filter_batches_total", "Batches closed.")
AGE = Histogram(
    "dapo_filter_age_versions", "Age of a group, that of its oldest token, in its batch.", buckets=(0, 1, 2, 4, 8, 16)
)
CATEGORY = Gauge(
    "dapo_filter_category_ratio",
    "Of each category: probability of being drawn, and averages of its pass rate and reward variance.",
    ["category", "what"],
)
EVAL = Gauge("dapo_filter_eval_accuracy_ratio", "Accuracy on the held-out rows at the newest finished evaluation.")
PHASE = Gauge("dapo_run_phase", "1 for what the run is, 0 for what it is not.", ["phase"])
RUN_STEP = Gauge("dapo_run_step", "Batches trained and published.")
RUN_STEPS = Gauge("dapo_run_steps", "Batches after which the run is done.")
MAX_STALENESS = Gauge("dapo_filter_max_staleness_versions", "Greatest age that may be trained on.")
PHASES = ("running", "done", "failed")


def show_limits(run: RunConfig) -> None:
    """What the run is measured against."""
    RUN_STEPS.set(run.steps)
    MAX_STALENESS.set(run.max_staleness)


def show_run(state: RunState) -> None:
    """How far the run is."""
    for phase in PHASES:
        PHASE.labels(phase).set(phase == state.phase)
    RUN_STEP.set(state.step)


class Measures:
    """Shows the state, and raises the alarm once when the keep rate falls below `low_keep_rate`."""

    def __init__(self, *, low_keep_rate: float) -> None:
        self._low_keep_rate = low_keep_rate
        self._alarmed = False

    def show(self, state: FilterState, *, pool: int) -> None:
        """Set every gauge."""
        GROUPS.labels("issued", "").set(state.issued)
        GROUPS.labels("trained", "").set(state.trained)
        GROUPS.labels("batched", "").set(state.num_batched)
        GROUPS.labels("accepted", "").set(len(state.accepted))
        GROUPS.labels("dispatched", "").set(len(state.outstanding) - len(state.accepted))
        for reason in REMEDIES:
            GROUPS.labels("dropped", reason).set(state.dropped.get(reason, 0))
        OUTSTANDING.set(state.num_outstanding)
        POOL.set(pool)
        KEEP_RATE.set(state.keep_rate)
        RECENT_KEEP_RATE.set(state.recent_keep_rate)
        finished = [version for version, tally in state.evals.items() if tally.finished]
        if finished and (accuracy := state.evals[max(finished)].accuracy) is not None:
            EVAL.set(accuracy)
        self._watch_keep_rate(state)
        self._show_categories(state.sampler)

    def batches(self, ages: Sequence[int], *, number: int) -> None:
        """Batches closed, and the ages of the groups in them."""
        BATCHES_CLOSED.inc(number)
        for age in ages:
            AGE.observe(age)

    def _show_categories(self, state: SamplerState) -> None:
        for name, share in state.table.items():
            monitored = state.monitored[name]
            CATEGORY.labels(name, "probability").set(share)
            CATEGORY.labels(name, "pass_rate").set(monitored.pass_rate.value or 0.0)
            CATEGORY.labels(name, "reward_variance").set(monitored.reward_variance.value or 0.0)

    def _watch_keep_rate(self, state: FilterState) -> None:
        known = len(state.recent) >= (RECENT // 2 if any(state.recent) else NONE_OF)
        low = known and state.recent_keep_rate < self._low_keep_rate
        LOW_KEEP_RATE.set(low)
        if low and not self._alarmed:
            log.warning(
                f"low keep rate: {sum(state.recent)} of the last {len(state.recent)} groups were kept",
                extra={"dropped": state.dropped, "kept": state.num_kept},
            )
        self._alarmed = low
