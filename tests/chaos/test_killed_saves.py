"""D27: a learner that is killed while it saves."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.chaos
def test_after_a_kill_at_any_moment_of_a_save_the_newest_complete_checkpoint_loads_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos.killed_saves", str(tmp_path), "20", "3"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert len(found) == 20
    # what loads never goes back, and is never a save that has not begun
    assert all(before <= after for before, after in itertools.pairwise(found))
    assert all(step <= number for number, step in enumerate(found, start=1))
    assert found[4::5] == [5, 10, 15, 20]  # those that were left alone
