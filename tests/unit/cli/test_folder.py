"""What may happen to a run folder."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from common.config import RunConfig
from common.errors import UserError
from services.broker.config import BrokerConfig
from services.cli import folder
from services.learner.config import LearnerConfig


def sections(**changes: Any) -> dict[str, Any]:
    run = dataclasses.replace(RunConfig(name="r", model="m"), **{k: v for k, v in changes.items() if k != "lr"})
    return {"run": run, "broker": BrokerConfig(), "learner": LearnerConfig(lr=changes.get("lr", 1e-6))}


def started(path: Path) -> Path:
    """A folder in which the learner has published the starting policy."""
    folder.prepare(path, sections(), resume=False, fresh=False)
    (path / "weights" / "v000000").mkdir(parents=True)
    (path / "metrics.jsonl").write_text("kept")
    return path


def test_a_new_run_writes_its_resolved_configuration(tmp_path: Path) -> None:
    folder.prepare(tmp_path / "r", sections(steps=7), resume=False, fresh=False)
    text = (tmp_path / "r" / "config.toml").read_text()
    assert "steps = 7" in text
    assert "lr = 1e-6" in text or "lr = 1e-06" in text, "defaults are written too"


def test_a_folder_with_progress_is_not_overwritten(tmp_path: Path) -> None:
    path = started(tmp_path / "r")
    with pytest.raises(UserError, match=r"--resume.*run\.name=.*--fresh"):
        folder.prepare(path, sections(), resume=False, fresh=False)
    assert (path / "metrics.jsonl").exists()


def test_a_folder_whose_run_never_began_is_made_anew(tmp_path: Path) -> None:
    folder.prepare(tmp_path / "r", sections(), resume=False, fresh=False)
    (tmp_path / "r" / "broker.db").write_text("empty queues")
    folder.prepare(tmp_path / "r", sections(), resume=False, fresh=False)
    assert not (tmp_path / "r" / "broker.db").exists()


def test_fresh_deletes_the_run_before(tmp_path: Path) -> None:
    path = started(tmp_path / "r")
    folder.prepare(path, sections(), resume=False, fresh=True)
    assert [entry.name for entry in path.iterdir()] == ["config.toml"]


def test_fresh_does_not_delete_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="is not a run folder"):
        folder.prepare(tmp_path, sections(), resume=False, fresh=True)
    assert (tmp_path / "thesis.txt").exists()


def test_resume_keeps_everything(tmp_path: Path) -> None:
    path = started(tmp_path / "r")
    folder.prepare(path, sections(steps=500, broker="tcp://127.0.0.1:1"), resume=True, fresh=False)
    assert (path / "metrics.jsonl").read_text() == "kept"
    assert "steps = 500" in (path / "config.toml").read_text()


def test_resume_refuses_another_mathematics_and_names_the_keys(tmp_path: Path) -> None:
    path = started(tmp_path / "r")
    with pytest.raises(UserError, match=r"learner\.lr \(1e-06, now 0\.1\), run\.group_size \(8, now 4\)"):
        folder.prepare(path, sections(lr=0.1, group_size=4), resume=True, fresh=False)


def test_a_run_that_stopped_at_its_cap_of_drops_resumes_with_a_higher_one() -> None:
    # the filter's message at the cap tells the user to raise it
    started_with = {"filter": {"max_dropped_in_a_row": 3, "min_survivors": 2}}
    raised = {"filter": {"max_dropped_in_a_row": 300, "min_survivors": 2}}
    assert folder.changed_keys(started_with, raised) == []
    assert folder.changed_keys(started_with, {"filter": {"max_dropped_in_a_row": 3, "min_survivors": 4}}) != []


def test_resume_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run to resume"):
        folder.prepare(tmp_path / "r", sections(), resume=True, fresh=False)
    assert not (tmp_path / "r").exists()


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    with folder.claimed(tmp_path / "r"):
        with pytest.raises(UserError, match="in use by another"), folder.claimed(tmp_path / "r"):
            pass
    with folder.claimed(tmp_path / "r"):
        pass
