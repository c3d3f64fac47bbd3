"""What the categories show: moving averages over their groups, one pass, float64, nothing stored per sample.

judged group   -> pass rate, reward variance, length
closed batch   -> age
feedback       -> policy-gradient variance
"""

from collections.abc import Iterable

from common.messages import Scored
from services.filter.sampling.state import Monitored


def moments(values: Iterable[float]) -> tuple[int, float, float]:
    """Number, mean and population variance in one pass (Welford 1962)."""
    count, mean, squares = 0, 0.0, 0.0
    for value in values:
        count += 1
        delta = value - mean
        mean += delta / count
        squares += delta * (value - mean)
    return count, mean, squares / count if count else 0.0


class Outcome:
    """What one group showed."""

    def __init__(self, scored: Scored) -> None:
        accuracies = (v.score for v in scored.verdicts if v.verdict != "error")
        self.attempts, self.pass_rate, self.variance = moments(accuracies)
        self.successes = self.attempts * self.pass_rate
        _, self.length, _ = moments(sample.num_tokens for sample in scored.group.samples)


def judged(monitored: Monitored, outcome: Outcome, decay: float) -> None:
    """A group came back; one without a verdict says nothing."""
    if outcome.attempts:
        monitored.pass_rate.add(outcome.pass_rate, decay)
        monitored.reward_variance.add(outcome.variance, decay)
        monitored.length.add(outcome.length, decay)
