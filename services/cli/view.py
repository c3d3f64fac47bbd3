"""A snapshot as text: one line for a log, a table for a terminal."""

from collections.abc import Mapping

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from services.cli.shares import STATES, shares
from services.cli.snapshot import QUEUES, Snapshot

STAGES = ("rollout", "reward", "filter", "learner", "broker")
"""In flow order."""
UNKNOWN = "-"


def line(snapshot: Snapshot, restarts: Mapping[str, int]) -> str:
    """One line of status."""
    busy = " ".join(f"{name} {_share(states, 'busy')}" for name, states in _stages(snapshot))
    parts = [f"step {snapshot.step}/{snapshot.steps}", *(f"{name} {value}" for name, value in _numbers(snapshot))]
    parts += [f"busy {busy}"] if busy else []
    parts += [f"restarts {sum(restarts.values())}"] if restarts else []
    return "  ".join(parts)


def table(snapshot: Snapshot, restarts: Mapping[str, int], *, title: str, elapsed_s: float) -> Group:
    """The live view."""
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(title, style="bold"),
        f"step {snapshot.step}/{snapshot.steps}",
        ProgressBar(total=snapshot.steps, completed=snapshot.step, width=32),
        _clock(elapsed_s),
    )
    numbers = Table.grid(padding=(0, 2))
    for name, value in _numbers(snapshot):
        numbers.add_row(Text(name, style="dim"), value)
    return Group(head, Text(), numbers, Text(), _stage_table(snapshot, restarts))


def _numbers(snapshot: Snapshot) -> list[tuple[str, str]]:
    rates = snapshot.tokens_per_s
    queues = " ".join(f"{queue} {snapshot.queued(queue)}" for queue in QUEUES)
    return [
        ("accuracy", _number(snapshot.newest("accuracy"))),
        ("held-out", _evals(snapshot)),
        ("reward", _number(snapshot.newest("reward"))),
        ("keep rate", _number(snapshot.keep_rate)),
        ("age", f"{_number(snapshot.newest('age_mean'))} (max {_number(snapshot.newest('age_max'), digits=0)})"),
        ("tokens/s", f"sampled {rates.get('sampled', 0):.0f} trained {rates.get('trained', 0):.0f}"),
        ("queued", queues),
    ]


def _evals(snapshot: Snapshot) -> str:
    """`0.41 -> 0.66 (version 10)`: the first and the newest evaluation."""
    if not snapshot.evals:
        return UNKNOWN
    first, last = snapshot.evals[0], snapshot.evals[-1]
    rise = "" if first is last else f" -> {last['accuracy']:.2f}"
    return f"{first['accuracy']:.2f}{rise} (version {last['version']})"


def _stage_table(snapshot: Snapshot, restarts: Mapping[str, int]) -> Table:
    stages = Table("stage", *STATES, "restarts", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name, states in _stages(snapshot):
        again = sum(count for process, count in restarts.items() if process.startswith(f"{name}-"))
        stages.add_row(name, *(_share(states, state) for state in STATES), str(again or ""))
    return stages


def _stages(snapshot: Snapshot) -> list[tuple[str, Mapping[str, float]]]:
    return [(name, snapshot.seconds[name]) for name in STAGES if name in snapshot.seconds]


def _share(states: Mapping[str, float], state: str) -> str:
    return f"{shares(states)[state]:.0%}" if sum(states.values()) else UNKNOWN


def _number(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
