"""What a crash of the filter must not lose. It is the broker's register `filter`, written with every hand-over.

issued = trained + sum(dropped) + outstanding          at every transaction (design, invariant 1)
outstanding = dispatched + accepted + batched
"""

from msgspec import Struct, field, msgpack

from services.filter.sampling.state import SamplerState

RECENT = 100
"""Judged groups over which the recent keep rate is taken."""


class EvalTally(Struct, kw_only=True):
    """One evaluation of the held-out rows."""

    rows: int
    samples: int = 1
    """Answers asked for to every row."""
    answered: int = 0
    """Rows that came back."""
    judged: int = 0
    """Answers with a verdict."""
    correct: float = 0.0
    """Sum of their scores."""
    errors: int = 0
    """Answers that no verifier could judge."""
    passes: dict[int, float] = field(default_factory=dict)
    """Sum of pass@k over the rows with k judged answers or more, by k."""
    ranked: dict[int, int] = field(default_factory=dict)
    """Number of those rows."""
    dead: list[str] = field(default_factory=list)
    min_version: int | None = None
    max_version: int | None = None

    @property
    def finished(self) -> bool:
        """Whether every row has come back."""
        return self.answered + len(self.dead) >= self.rows

    @property
    def accuracy(self) -> float | None:
        """Mean score of the answers that could be judged: avg@k for k answers a row; None if there are none."""
        return self.correct / self.judged if self.judged else None

    @property
    def pass_rates(self) -> dict[int, float]:
        """pass@k by k."""
        return {k: total / self.ranked[k] for k, total in sorted(self.passes.items())}


class FilterState(Struct, kw_only=True):
    """The filter's account."""

    epoch_length: int = 0
    """Prompts in an epoch, since the first transaction; the ids depend on it."""
    next_ordinal: int = 0
    next_step: int = 0
    """The next batch to close."""
    version: int = 0
    """Newest published policy version."""
    outstanding: dict[str, int] = field(default_factory=dict)
    """Groups issued that are in no batch, with s, the version published when each was issued."""
    accepted: set[str] = field(default_factory=set)
    """Those of them that came back and were kept; a restarted filter gets them again and does not count them anew."""
    batched: dict[int, list[str]] = field(default_factory=dict)
    """Groups of batches that are not trained yet, by step."""
    reissue: list[str] = field(default_factory=list)
    """New ids of dropped prompts that go out again before any other."""
    issued: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """By reason."""
    dropped_in_a_row: int = 0
    recent: list[int] = field(default_factory=list)
    """1 kept, 0 dropped: the last `RECENT` groups that were judged."""
    evals: dict[int, EvalTally] = field(default_factory=dict)
    """By the version they were issued for."""
    sampler: SamplerState = field(default_factory=SamplerState)

    @property
    def num_batched(self) -> int:
        """Groups in batches that are not trained yet."""
        return sum(map(len, self.batched.values()))

    @property
    def num_outstanding(self) -> int:
        """O: issued and neither trained nor dropped."""
        return len(self.outstanding) + self.num_batched

    @property
    def num_kept(self) -> int:
        """Groups that were kept, wherever they are now."""
        return self.trained + self.num_batched + len(self.accepted)

    @property
    def num_dropped(self) -> int:
        """Groups dropped for whatever reason."""
        return sum(self.dropped.values())

    @property
    def keep_rate(self) -> float:
        """Share of the decided groups that were kept."""
        return self.num_kept / max(1, self.num_kept + self.num_dropped)

    @property
    def recent_keep_rate(self) -> float:
        """Share of the last `RECENT` judged groups that were kept."""
        return sum(self.recent) / max(1, len(self.recent))

    def totals(self) -> dict[str, float]:
        """The account as flat numbers, for the header of a batch."""
        return {
            "issued": self.issued,
            "trained": self.trained,
            "outstanding": self.num_outstanding,
            "keep_rate": self.keep_rate,
            "recent_keep_rate": self.recent_keep_rate,
            **{f"dropped_{reason}": count for reason, count in sorted(self.dropped.items())},
        }

    def check(self) -> None:
        """Invariant 1; a violation is a bug and ends the process before anything is written."""
        total = self.trained + self.num_dropped + self.num_outstanding
        if self.issued != total:
            raise AssertionError(f"{self.issued} groups issued, {total} accounted for: {self}")
        if not self.accepted <= self.outstanding.keys():
            raise AssertionError(f"groups accepted, but not outstanding: {self.accepted - self.outstanding.keys()}")


def dumps(state: FilterState) -> bytes:
    """The register's value."""
    return msgpack.encode(state)


def loads(value: bytes) -> FilterState:
    """The state of a register's value; a register that is not set is a new run."""
    return msgpack.decode(value, type=FilterState) if value else FilterState()
