"""A snapshot as one line, for a log; and its numbers as text, for whoever shows them."""

from collections.abc import Mapping

from services.cli.shares import shares
from services.cli.snapshot import QUEUES, Snapshot

STAGES = ("rollout", "reward", "filter", "learner", "broker")
"""In flow order."""
UNKNOWN = "-"


def line(snapshot: Snapshot, restarts: Mapping[str, int]) -> str:
    """One line of status."""
    busy = " ".join(f"{name} {_share(states, 'busy')}" for name, states in stages(snapshot))
    parts = [f"step {snapshot.step}/{snapshot.steps}", *(f"{name} {value}" for name, value in _numbers(snapshot))]
    parts += [f"busy {busy}"] if busy else []
    parts += [f"restarts {sum(restarts.values())}"] if restarts else []
    return "  ".join(parts)


def _numbers(snapshot: Snapshot) -> list[tuple[str, str]]:
    rates = snapshot.tokens_per_s
    queues = " ".join(f"{queue} {snapshot.queued(queue)}" for queue in QUEUES)
    return [
        ("accuracy", number(snapshot.newest("accuracy"))),
        ("held-out", held_out(snapshot)),
        ("reward", number(snapshot.newest("reward"))),
        ("keep rate", number(snapshot.keep_rate)),
        ("age", f"{number(snapshot.newest('age_mean'))} (max {number(snapshot.newest('age_max'), digits=0)})"),
        ("tokens/s", f"sampled {rates.get('sampled', 0):.0f} trained {rates.get('trained', 0):.0f}"),
        ("queued", queues),
    ]


def held_out(snapshot: Snapshot) -> str:
    """`0.41 -> 0.66 (version 10)`: the first and the newest evaluation."""
    if not snapshot.evals:
        return UNKNOWN
    first, last = snapshot.evals[0], snapshot.evals[-1]
    rise = "" if first is last else f" -> {last['accuracy']:.2f}"
    return f"{first['accuracy']:.2f}{rise} (version {last['version']})"


def stages(snapshot: Snapshot) -> list[tuple[str, Mapping[str, float]]]:
    """Seconds by state of every stage, in flow order."""
    return [(name, snapshot.seconds[name]) for name in STAGES if name in snapshot.seconds]


def _share(states: Mapping[str, float], state: str) -> str:
    return f"{shares(states)[state]:.0%}" if sum(states.values()) else UNKNOWN


def number(value: float | None, digits: int = 2) -> str:
    """The value, or that it is not known."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"
