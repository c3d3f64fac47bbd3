"""Section [weights]."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WeightsConfig:
    """How the weight store is served to other machines."""

    bind: str = ""
    """Address to listen on; empty: the address in [run] weights."""
    allow_remote: bool = False
    """Whether to listen beyond loopback without keys: only on a network that no stranger can reach."""
    max_mb_per_s: float = 0.0
    """Megabytes (10^6 bytes) a second to all rollouts together; 0: as fast as the network is."""
    metrics_port: int = 9180
    """Port of /metrics; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.max_mb_per_s < 0:
            raise ValueError("`max_mb_per_s` must be 0 or more")
