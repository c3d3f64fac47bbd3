"""What the prompt sampler must not lose, a part of the filter's register.

Of a million prompts not all can be written with every hand-over: a file in the run folder holds them as they were at
some transaction, `overlay` those that changed since, by their present values. File and overlay together are exact.
"""

from typing import NamedTuple

from msgspec import Struct, field


class Known(NamedTuple):
    """One prompt. The real numbers are rounded to float32, as the file holds them."""

    attempts: float
    successes: float
    seen: int
    """Policy version at the last answer."""
    due: int
    """The epoch in which it must be visited next."""


class Average(Struct, kw_only=True):
    """Exponential moving average in float64, not biased towards its start: sum of decay^age x, and of decay^age."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float, decay: float) -> None:
        """One more value."""
        self.total = decay * self.total + (1 - decay) * value
        self.weight = decay * self.weight + (1 - decay)

    @property
    def value(self) -> float | None:
        """None before the first value."""
        return self.total / self.weight if self.weight else None


class Monitored(Struct, kw_only=True):
    """One category, averaged over its groups."""

    pass_rate: Average = field(default_factory=Average)
    reward_variance: Average = field(default_factory=Average)
    """Of the raw accuracies within a group: q (1 - q) for 0/1 verdicts."""
    gradient_variance: Average = field(default_factory=Average)
    age: Average = field(default_factory=Average)
    """In versions, of the groups in closed batches."""
    length: Average = field(default_factory=Average)
    """Tokens of a response."""


class Tally(Struct, kw_only=True):
    """One category during one step."""

    draws: int = 0
    judged: int = 0
    kept: int = 0
    attempts: int = 0
    successes: float = 0.0


class SamplerState(Struct, kw_only=True):
    """Everything that is not in the file. Empty for samplers that only count."""

    epoch: int = -1
    due: int = 0
    """Prompts to be visited in this epoch."""
    visited: int = 0
    """Those of them that were."""
    cursor: int = 0
    """Place in the epoch's order up to which every prompt was visited."""
    drawn: dict[int, int] = field(default_factory=dict)
    """Ordinal -> row of the prompts that are out."""
    table: dict[str, float] = field(default_factory=dict)
    """Probability of each category since the last update."""
    stage: str = ""
    updated: int = -1
    """Version at the last update of the table."""
    monitored: dict[str, Monitored] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    """Since the last step ended."""
    finished: list[bytes] = field(default_factory=list)
    """Lines of sampling.jsonl that the last transactions brought; written when those are committed."""
    file: str = ""
    """Name of the file that holds all prompts; empty: none yet."""
    overlay: dict[int, Known] = field(default_factory=dict)
    """Prompts by row that changed since the file was written."""
