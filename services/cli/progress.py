"""How far a preparation is: a bar in a terminal, a line every tenth in a log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Report = Callable[[str, float], None]
"""What is being done, and the share of it that is done."""


@contextmanager
def shown(console: Console) -> Iterator[Report]:
    """Shows progress as long as the block lasts."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bars:
            yield _on_bars(bars)
    else:
        yield _on_lines(console)


def _on_bars(bars: Progress) -> Report:
    tasks = {}

    def report(text: str, share: float) -> None:
        if text not in tasks:
            tasks[text] = bars.add_task(text, total=1.0)
        bars.update(tasks[text], completed=share)

    return report


def _on_lines(console: Console) -> Report:
    tenths: dict[str, int] = {}

    def report(text: str, share: float) -> None:
        if int(share * 10) > tenths.get(text, -1):
            tenths[text] = int(share * 10)
            console.print(f"{text}: {share:.0%}", highlight=False, soft_wrap=True)

    return report
