"""Section [broker]."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """How the broker stores and delivers."""

    bind: str = ""
    """Address to listen on; empty: the address in [run] broker."""
    allow_remote: bool = False
    """Whether to listen beyond loopback without keys: only on a network that no stranger can reach."""
    durability: Literal["process", "full"] = "process"
    """`process`: an acknowledged hand-over survives the death of the broker; `full`: also a power cut (fsync)."""
    max_deliveries: int = 10
    """Deliveries of an item without a settlement before it goes to the dead-letter queue."""
    endless: list[str] = field(default_factory=lambda: ["batches", "feedback", "turns"])
    """Queues whose items are delivered for ever: who holds them may die as often as it likes."""
    segment_bytes: int = 64 << 20
    """Size at which a payload segment is closed and the next begun."""
    remember_ids: int = 1_000_000
    """Ids given, of all queues together, that are remembered so that giving one again changes nothing; 100 bytes each.
    A resumed learner repeats its feedback: more ids than pass between two checkpoints must be remembered."""
    min_free_mb: int = 64
    """Free space on the disk of the run folder, in MiB, below which nothing new is accepted until there is more."""
    max_message_bytes: int = 1 << 28
    """Largest frame that is accepted."""
    metrics_port: int = 9100
    """Port of /metrics; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.max_deliveries < 1:
            raise ValueError("`max_deliveries` must be at least 1")
        if self.remember_ids < 1000:
            raise ValueError("`remember_ids` must be at least 1000")
        if self.min_free_mb < 0:
            raise ValueError("`min_free_mb` must be 0 or more")
        if self.segment_bytes < 1 << 16:
            raise ValueError("`segment_bytes` must be at least 65536")
