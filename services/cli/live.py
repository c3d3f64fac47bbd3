"""The live view: a thread that reads what the run writes and shows it; the supervisor never waits for it.

RUN/metrics.jsonl, RUN/evals.jsonl, /metrics of all services -> Snapshot -> dashboard (terminal) or line (log)
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live as Screen

from common.config import RunConfig
from services.cli import view
from services.cli.alarms import alarms
from services.cli.board import Board
from services.cli.dashboard import Scene, render
from services.cli.ports import Endpoint
from services.cli.reader import Reader
from services.cli.snapshot import Snapshot

TERMINAL_EVERY_S, LOG_EVERY_S = 1.0, 5.0
QUIET_S = 30.0
"""A log gets a line when a step was made, or after this long."""


class Live:
    """Shows a run as long as the block lasts."""

    def __init__(
        self, *, run: RunConfig, endpoints: Sequence[Endpoint], board: Board, console: Console | None = None
    ) -> None:
        self._board = board
        self._console = console or Console()
        self._reader = Reader(run.path, run.steps, endpoints)
        self._run = run
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="live view", daemon=True)
        self._started = time.monotonic()
        self._logged_step, self._logged_at = -1, self._started

    def __enter__(self) -> None:
        """Start the thread."""
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; a terminal that does not take output holds up nobody."""
        self._stop.set()
        self._thread.join(timeout=2.0)

    def _loop(self) -> None:
        every_s = TERMINAL_EVERY_S if self._console.is_terminal else LOG_EVERY_S
        with self._shown() as show:
            while not self._stop.wait(every_s):
                show(self._reader.read())
                self._print_notes()
        self._print_notes()

    @contextmanager
    def _shown(self) -> Iterator[Callable[[Snapshot], None]]:
        """How a snapshot is shown here."""
        if not self._console.is_terminal:
            yield self._log
            return
        with Screen(console=self._console, auto_refresh=False) as screen:
            yield lambda snapshot: screen.update(self._dashboard(snapshot), refresh=True)

    def _dashboard(self, snapshot: Snapshot) -> Group:
        scene = Scene(
            title=str(self._run.path),
            snapshot=snapshot,
            restarts=self._board.restarts,
            alarms=alarms(snapshot, max_staleness=self._run.max_staleness, now=time.time()),
            elapsed_s=time.monotonic() - self._started,
        )
        return render(scene, width=self._console.width)

    def _log(self, snapshot: Snapshot) -> None:
        """One line, unless nothing has happened since the last."""
        now = time.monotonic()
        if snapshot.step != self._logged_step or now - self._logged_at >= QUIET_S:
            self._logged_step, self._logged_at = snapshot.step, now
            self._console.print(view.line(snapshot, self._board.restarts), highlight=False, soft_wrap=True)

    def _print_notes(self) -> None:
        while True:
            try:
                self._console.print(self._board.notes.get_nowait(), highlight=False, soft_wrap=True)
            except Empty:
                return
