"""`dapo top [RUN]`: what a run does now, in a terminal, also over ssh; `--once` and `--json` for scripts.

RUN/config.toml -> where its services show metrics; then as the live view of `dapo run`: reader -> dashboard
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live as Screen

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli.alarms import alarms
from services.cli.dashboard import Scene, render
from services.cli.events import last_events
from services.cli.folder import CONFIG
from services.cli.processes import metrics_endpoints, read_sections
from services.cli.reader import Reader
from services.cli.snapshot import QUEUES, Snapshot

EVENTS = 6
ONCE_S = 2.0
"""Over which `--once` measures rates."""


class Top:
    """Looks at one run; starts and changes nothing."""

    def __init__(self, folder: Path) -> None:
        sections = read_sections(config.read(folder / CONFIG))
        self._folder = folder
        self._run: RunConfig = sections["run"]
        self._reader = Reader(folder, self._run.steps, metrics_endpoints(sections), joins=True)

    def scene(self) -> Scene:
        """The run now."""
        snapshot, events = self._reader.read(), last_events(self._folder, EVENTS)
        return Scene(
            title=str(self._folder),
            snapshot=snapshot,
            restarts=Counter(e.who for e in last_events(self._folder, sys.maxsize) if e.text == "started again"),
            alarms=alarms(snapshot, max_staleness=self._run.max_staleness, now=time.time()),
            events=events,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Show until Ctrl-C, or once; returns the exit status."""
    arguments = _arguments(argv)
    try:
        top = Top(arguments.run or newest_run(Path("runs")))
    except UserError as error:
        print(f"dapo top: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    console = Console(width=arguments.width)
    if arguments.json or arguments.once or not console.is_terminal:
        _once(top, console, as_json=arguments.json)
    else:
        _watch(top, console, every_s=arguments.every)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dapo top", description="Show what a run does now.")
    parser.add_argument("run", type=Path, nargs="?", help="run folder (default: the newest in runs/)")
    parser.add_argument("--once", action="store_true", help="print the dashboard once; so too if stdout is no terminal")
    parser.add_argument("--json", action="store_true", help="print one JSON object and end")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="between two looks (default 1)")
    parser.add_argument("--width", type=int, help="columns (default: those of the terminal)")
    return parser.parse_args(argv)


def newest_run(runs: Path) -> Path:
    """The run folder with the newest metrics; raises `UserError` if there is none."""
    found = [path.parent for path in runs.glob(f"*/{CONFIG}")]
    if not found:
        raise UserError(f"{runs}/ holds no run: give a run folder, for instance `dapo top runs/demo`")
    return max(found, key=_touched)


def _touched(folder: Path) -> float:
    metrics = folder / "metrics.jsonl"
    return (metrics if metrics.exists() else folder / CONFIG).stat().st_mtime


def _once(top: Top, console: Console, *, as_json: bool) -> None:
    top.scene()
    time.sleep(ONCE_S)
    scene = top.scene()
    if as_json:
        print(json.dumps(as_table(scene)))
    else:
        console.print(render(scene, width=console.width), highlight=False)


def _watch(top: Top, console: Console, *, every_s: float) -> None:
    with Screen(console=console, auto_refresh=False, screen=True) as screen:
        while True:
            screen.update(render(top.scene(), width=console.width), refresh=True)
            time.sleep(max(0.1, every_s))


def as_table(scene: Scene) -> dict[str, Any]:
    """What the dashboard shows, for programs."""
    snapshot: Snapshot = scene.snapshot
    return {
        "run": scene.title,
        "step": snapshot.step,
        "steps": snapshot.steps,
        "newest": dict(snapshot.rows[-1]) if snapshot.rows else {},
        "evals": list(snapshot.evals),
        "stage_seconds": snapshot.seconds,
        "queues": {queue: snapshot.queued(queue) for queue in QUEUES},
        "tokens_per_second": snapshot.tokens_per_s,
        "silent": list(snapshot.silent),
        "restarts": dict(scene.restarts),
        "alarms": list(scene.alarms),
        "events": [event._asdict() for event in scene.events],
    }


if __name__ == "__main__":
    sys.exit(main())
