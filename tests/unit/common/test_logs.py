"""Lines of a service's log."""

import json
import logging
from pathlib import Path

import pytest

from common import logs


@pytest.fixture(autouse=True)
def _root_as_before() -> object:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers, root.level = handlers, level


def test_a_line_says_the_run_the_service_and_what_it_is_about(tmp_path: Path) -> None:
    logs.start("rollout-1", tmp_path / "mine" / "logs", console=False)
    logging.getLogger("x").warning("group failed", extra={"group": "0/000007", "version": 3})
    (line,) = (tmp_path / "mine" / "logs" / "rollout-1.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert {key: found[key] for key in ("run", "service", "level", "event", "group", "version")} == {
        "run": "mine", "service": "rollout-1", "level": "warning", "event": "group failed", "group": "0/000007",
        "version": 3,
    }  # fmt: skip
