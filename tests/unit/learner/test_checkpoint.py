import os
import shutil
from pathlib import Path

import pytest
import torch

from common import folders
from services.learner import checkpoint
from services.learner.checkpoint import LearnerState


def state(step: int) -> LearnerState:
    return LearnerState(
        step=step,
        updates=2 * step,
        skips=1,
        model={"a": torch.full((3,), float(step))},
        optimizer={"exp_avg/a": torch.full((3,), 0.5), "exp_avg_sq/a": torch.full((3,), 0.25)},
        rng=torch.get_rng_state(),
    )


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = state(7)
    checkpoint.save(tmp_path, saved, keep=2)
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None
    assert loaded[:3] == (7, 14, 1)
    assert torch.equal(loaded.model["a"], saved.model["a"])
    assert torch.equal(loaded.optimizer["exp_avg/a"], saved.optimizer["exp_avg/a"])
    assert torch.equal(loaded.rng, saved.rng)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.load_newest(tmp_path / "absent") is None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        checkpoint.save(tmp_path, state(step), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000003", "step-000004"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


OPERATIONS = ("rename", "write_bytes", "chmod")


@pytest.mark.parametrize("survived", range(12))
def test_a_kill_at_any_point_of_a_save_leaves_a_loadable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    checkpoint.save(tmp_path, state(1), keep=1)
    left = survived

    def counted(function):  # type: ignore[no-untyped-def]
        def call(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", counted(checkpoint.save_file))
        patch.setattr(checkpoint, "fsync", counted(checkpoint.fsync))
        patch.setattr(folders, "fsync", counted(folders.fsync))
        patch.setattr(Path, "rename", counted(Path.rename))
        patch.setattr(Path, "write_bytes", counted(Path.write_bytes))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        try:
            checkpoint.save(tmp_path, state(2), keep=1)
            finished = True
        except Killed:
            finished = False
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None
    assert loaded.step == 2 if finished else loaded.step in (1, 2)
    checkpoint.save(tmp_path, state(3), keep=1)  # what the kill left behind does not stand in the way
    assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE])
def test_a_truncated_file_is_skipped_and_named(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint.save(tmp_path, state(1), keep=2)
    path = checkpoint.save(tmp_path, state(2), keep=2) / name
    os.truncate(path, path.stat().st_size // 2)
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None
    assert loaded.step == 1
    assert any(name in str(record.__dict__.get("cause")) for record in caplog.records)


def test_a_checkpoint_without_its_mark_is_incomplete(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, state(1), keep=2)
    (path / checkpoint.DONE).unlink()
    assert checkpoint.damage(path) == "it was not completed"
    assert checkpoint.load_newest(tmp_path) is None
