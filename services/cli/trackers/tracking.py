"""A thread of `dapo run` that follows the run for the trackers of its configuration; the supervisor never waits for it.

What goes wrong in a tracker (a full disk, a server that is away) ends the tracking, is said once, and harms no run.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from services.cli.board import Board
from services.cli.trackers.follow import Follower
from services.cli.trackers.tracker import Tables, Tracker, open_tracker

EVERY_S = 2.0
CLOSING_S = 30.0
"""How long the end of a run waits for the trackers to write or send what they have."""


class Tracking:
    """Follows as long as the block lasts."""

    def __init__(self, kinds: Sequence[str], folder: Path, tables: Tables, board: Board) -> None:
        self._kinds = kinds
        self._folder = folder
        self._tables = tables
        self._board = board
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="trackers", daemon=True)

    def __enter__(self) -> None:
        """Start the thread if there is a tracker."""
        if self._kinds:
            self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it tell the last steps."""
        self._stop.set()
        if self._kinds:
            self._thread.join(timeout=CLOSING_S)

    def _guarded(self) -> None:
        try:
            follow(self._kinds, self._folder, self._tables, self._stop)
        except Exception as error:
            self._board.notes.put(f"trackers stopped ({type(error).__name__}: {error}); the run goes on")


def follow(kinds: Sequence[str], folder: Path, tables: Tables, stop: threading.Event) -> None:
    """Tell news until `stop` is set, and once more."""
    trackers: list[Tracker] = [open_tracker(kind, folder, tables) for kind in kinds]
    follower = Follower(folder, trackers)
    try:
        while not stop.wait(EVERY_S):
            follower.tell_news()
        follower.tell_news()
    finally:
        for tracker in trackers:
            tracker.close()
