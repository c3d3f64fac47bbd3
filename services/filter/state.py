"""What a crash of the filter must not lose. It is the broker's register `filter`, written with every hand-over.

issued = trained + sum(dropped) + outstanding + batched          at every transaction
"""

from msgspec import Struct, field, msgpack


class EvalTally(Struct, kw_only=True):
    """One evaluation of the held-out rows."""

    rows: int
    answered: int = 0
    correct: float = 0.0
    errors: int = 0
    dead: list[str] = field(default_factory=list)
    min_version: int | None = None
    max_version: int | None = None

    @property
    def finished(self) -> bool:
        """Whether every row has come back."""
        return self.answered + len(self.dead) >= self.rows

    @property
    def accuracy(self) -> float:
        """Mean score of the rows that could be judged."""
        judged = self.answered - self.errors
        return self.correct / judged if judged else 0.0


class FilterState(Struct, kw_only=True):
    """The filter's account."""

    next_ordinal: int = 0
    next_step: int = 0
    """The next batch to close."""
    version: int = 0
    """Newest published policy version."""
    outstanding: dict[str, int] = field(default_factory=dict)
    """Groups issued that are in no batch, with s, the version published when each was issued."""
    batched: dict[int, list[str]] = field(default_factory=dict)
    """Groups of batches that are not trained yet, by step."""
    reissue: list[str] = field(default_factory=list)
    """New ids of dropped prompts that go out again before any other."""
    issued: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """By reason."""
    dropped_in_a_row: int = 0
    evals: dict[int, EvalTally] = field(default_factory=dict)
    """By the version they were issued for."""

    @property
    def num_outstanding(self) -> int:
        """O: issued and neither trained nor dropped."""
        return len(self.outstanding) + sum(map(len, self.batched.values()))

    @property
    def keep_rate(self) -> float:
        """Share of the judged groups that were kept."""
        kept = self.trained + sum(map(len, self.batched.values()))
        return kept / max(1, kept + sum(self.dropped.values()))

    def check(self) -> None:
        """Invariant 1; a violation is a bug and ends the process before anything is written."""
        total = self.trained + sum(self.dropped.values()) + self.num_outstanding
        if self.issued != total:
            raise AssertionError(f"{self.issued} groups issued, {total} accounted for: {self}")


def dumps(state: FilterState) -> bytes:
    """The register's value."""
    return msgpack.encode(state)


def loads(value: bytes) -> FilterState:
    """The state of a register's value; a register that is not set is a new run."""
    return msgpack.decode(value, type=FilterState) if value else FilterState()
