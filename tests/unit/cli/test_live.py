"""The live view of `dapo run`: the dashboard in a terminal, lines in a log."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from common.config import RunConfig
from services.cli import live
from services.cli.board import Board
from services.cli.live import Live
from tests.run_folders import make_run


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    monkeypatch.setattr(live, "TERMINAL_EVERY_S", 0.02)
    monkeypatch.setattr(live, "LOG_EVERY_S", 0.02)
    run = RunConfig(name=folder.name, folder=str(folder.parent), model="tiny", steps=20)
    board, file = Board(), io.StringIO()
    board.notes.put("learner-0 ended (SIGKILL); started again")
    board.restarts["learner-0"] += 1
    with Live(run=run, endpoints=[], board=board, console=Console(file=file, force_terminal=terminal, width=90)):
        deadline = time.monotonic() + 10
        while "step 12/20" not in file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    return file.getvalue()


def test_a_terminal_gets_the_dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(make_run(tmp_path / "run"), monkeypatch, terminal=True)
    for part in ("step 12/20", "numbers", "stages", "queues", "no step for"):
        assert part in text


def test_a_log_gets_lines_and_the_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(make_run(tmp_path / "run"), monkeypatch, terminal=False)
    assert "step 12/20  accuracy 0.70  held-out 0.25 -> 0.75 (version 12)" in text
    assert "restarts 1" in text
    assert "learner-0 ended (SIGKILL); started again" in text
    assert "╭" not in text
