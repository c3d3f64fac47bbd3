"""Section [filter]."""

from dataclasses import dataclass
from typing import Literal

from common.messages import VERIFIERS


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Where prompts come from and which groups are trained on."""

    data: str
    """JSONL or Parquet file of training rows."""
    eval_data: str = ""
    """JSONL or Parquet file of held-out rows; empty: no evaluation, or `eval_rows` of `data`."""
    eval_rows: int = 0
    """Rows of `data` to hold out, chosen by a hash of the prompt, when `eval_data` is empty."""
    eval_every: int = 0
    """Versions between evaluations; 0: only the first and the last version."""
    verifier: str = ""
    """Verifier of rows that name none; empty: `math`, and for rows in verl's schema what their data_source needs."""
    system: str = ""
    """System prompt put before every row that has none."""
    suffix: str = ""
    """Text added to the last user message, for instance how to give the answer."""
    on_bad_row: Literal["fail", "drop"] = "fail"
    """Whether a row that cannot be used stops the run or is left out."""
    min_survivors: int = 2
    """Samples with a verdict that a group needs to be trained."""
    reserve: int = 2
    """Prompts kept ready beyond what waiting rollouts ask for."""
    low_keep_rate: float = 0.1
    """Share of kept groups, of the last 100, below which an alarm is raised."""
    max_dropped_in_a_row: int = 0
    """Groups dropped one after the other, with none kept, that stop the run; 0: no cap."""
    metrics_port: int = 9120
    """Port of /metrics; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if not self.data:
            raise ValueError("`data` must name a JSONL or Parquet file")
        if self.verifier and self.verifier not in VERIFIERS:
            raise ValueError(f"`verifier` must be one of {', '.join(VERIFIERS)}, or empty")
        if self.min_survivors < 2:
            raise ValueError("`min_survivors` must be at least 2: one sample has nothing to be compared with")
        if not 0 <= self.low_keep_rate <= 1:
            raise ValueError("`low_keep_rate` must be a share, from 0 to 1")
        for key in ("eval_rows", "eval_every", "reserve", "max_dropped_in_a_row"):
            if getattr(self, key) < 0:
                raise ValueError(f"`{key}` must be 0 or more")
