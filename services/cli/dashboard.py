"""The terminal dashboard of a run, of `dapo run` and `dapo top`: a snapshot as rich text, as wide as the terminal.

title, progress | numbers with sparklines | stages busy, starved, blocked | queues | alarms | last events
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from services.cli.events import Event
from services.cli.shares import STATES, shares
from services.cli.snapshot import QUEUES, Snapshot
from services.cli.view import UNKNOWN, number, stages

BLOCKS = "▁▂▃▄▅▆▇█"
WIDE = 120
"""Columns from which on the panels stand side by side."""
BAR, FRAME, LEFT = 16, 4, 32
"""Columns of a stage's bar, of a panel's frame, and of the numbers left of a sparkline."""
STYLES = {"busy": ("█", "green"), "starved": ("░", "bright_black"), "blocked": ("▒", "red")}
NUMBERS = (
    ("accuracy", "accuracy"), ("reward", "reward"), ("entropy", "entropy"), ("length", "length_mean"),
    ("keep rate", "filter_recent_keep_rate"), ("mean age", "age_mean"), ("seconds a step", "seconds"),
)  # fmt: skip
"""Name on the screen, and in metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """All that is shown at one moment."""

    title: str
    snapshot: Snapshot
    restarts: Mapping[str, int]
    """By process."""
    alarms: Sequence[str] = ()
    events: Sequence[Event] = ()
    elapsed_s: float | None = None


def render(scene: Scene, *, width: int) -> Group:
    """The dashboard for a terminal of that width."""
    parts: list[RenderableType] = [_head(scene)]
    spark = max(8, min(60, (width // 2 if width >= WIDE else width) - FRAME - LEFT))
    numbers, flow = _panel("numbers", _numbers(scene.snapshot, spark=spark)), _panel("stages", _stages(scene))
    queues = _panel("queues", _queues(scene.snapshot))
    parts += [_beside(numbers, Group(flow, queues)), *_alarms(scene.alarms)] if width >= WIDE else [
        numbers, flow, queues, *_alarms(scene.alarms)
    ]  # fmt: skip
    if scene.events:
        parts.append(_panel("last events", _events(scene.events)))
    return Group(*parts)


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as blocks, the lowest value the lowest block; more than `width` are averaged over neighbours."""
    if len(values) > width:
        edges = [k * len(values) // width for k in range(width + 1)]
        values = [sum(values[first:end]) / (end - first) for first, end in pairwise(edges)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = (high - low) or 1.0
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int((value - low) / span * len(BLOCKS)))] for value in values)


def _head(scene: Scene) -> Table:
    head = Table.grid(padding=(0, 2))
    snapshot = scene.snapshot
    head.add_row(
        Text(scene.title, style="bold"),
        f"step {snapshot.step}/{snapshot.steps}",
        ProgressBar(total=max(1, snapshot.steps), completed=snapshot.step, width=24, complete_style="green"),
        "" if scene.elapsed_s is None else clock(scene.elapsed_s),
    )
    return head


def clock(seconds: float) -> str:
    """`1:05`, `2:03:09`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _numbers(snapshot: Snapshot, *, spark: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    held_out = [row["accuracy"] for row in snapshot.evals]
    rise = " -> ".join(f"{value:.2f}" for value in [*held_out[:1], *held_out[1:][-1:]])
    grid.add_row(Text("held-out", "dim"), rise or UNKNOWN, Text(sparkline(held_out, spark), "cyan"))
    for name, column in NUMBERS:
        values = _seconds_a_step(snapshot) if column == "seconds" else snapshot.column(column)
        grid.add_row(Text(name, "dim"), number(values[-1] if values else None), Text(sparkline(values, spark), "cyan"))
    for name, rate in snapshot.tokens_per_s.items():
        grid.add_row(Text(f"tokens {name}", "dim"), f"{rate:.0f} /s")
    return grid


def _seconds_a_step(snapshot: Snapshot) -> list[float]:
    times = snapshot.column("time")
    return [after - before for before, after in pairwise(times)]


def _stages(scene: Scene) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row("", "", *(Text(state, STYLES[state][1]) for state in STATES), Text("died", "dim"))
    for name, states in stages(scene.snapshot):
        share = shares(states)
        again = sum(count for process, count in scene.restarts.items() if process.startswith(f"{name}-"))
        cells = [f"{share[state]:4.0%}" if sum(states.values()) else UNKNOWN for state in STATES]
        grid.add_row(Text(name), stage_bar(share), *cells, str(again or ""))
    return grid


def stage_bar(share: Mapping[str, float], width: int = BAR) -> Text:
    """Busy, starved and blocked as parts of a bar."""
    bar, filled, whole = Text(), 0, 0.0
    for state in STATES:
        whole += share[state]
        end = round(whole * width)
        sign, style = STYLES[state]
        bar.append(sign * (end - filled), style)
        filled = end
    return bar


def _queues(snapshot: Snapshot) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(*(Text(name, style="dim") for name in ("queue", "ready", "leased", "dead", "oldest")))
    for queue in QUEUES:
        counts = [snapshot.numbers.first("dapo_queue_items", queue=queue, state=s) for s in ("ready", "leased", "dead")]
        oldest = snapshot.numbers.first("dapo_queue_oldest_seconds", queue=queue)
        grid.add_row(queue, *(number(c, digits=0) for c in counts), UNKNOWN if oldest is None else f"{oldest:.1f} s")
    return grid


def _alarms(alarms: Sequence[str]) -> list[RenderableType]:
    if not alarms:
        return []
    return [Panel(Text("\n".join(alarms)), title="alarms", title_align="left", border_style="red", box=box.ROUNDED)]


def _events(events: Sequence[Event]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="ellipsis", no_wrap=True)
    for event in events:
        grid.add_row(
            Text(time.strftime("%H:%M:%S", time.localtime(event.time)), "dim"), Text(event.who), Text(event.text)
        )
    return grid


def _panel(title: str, body: RenderableType) -> Panel:
    return Panel(body, title=title, title_align="left", border_style="bright_black", box=box.ROUNDED)


def _beside(left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(left, right)
    return grid
