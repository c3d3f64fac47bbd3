"""What the supervisor tells the live view. Written by the supervisor, read by the view's thread."""

from collections import Counter
from dataclasses import dataclass, field
from queue import SimpleQueue


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    status: int
    """Exit status of `dapo run`: 0 done, 1 failed, 2 a mistake of the user, 128 + N stopped by signal N."""
    message: str = ""


@dataclass(kw_only=True)
class Board:
    """The supervisor's view of the run."""

    step: int = 0
    """Batches trained and published, as the register `run` says."""
    restarts: Counter[str] = field(default_factory=Counter)
    """By service."""
    notes: SimpleQueue[str] = field(default_factory=SimpleQueue)
    """Sentences for the terminal."""
