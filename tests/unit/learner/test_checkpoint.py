import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from common import folders
from common.disk import is_full
from services.learner import checkpoint
from services.learner.checkpoint import Counters
from services.learner.ranks import World

RNG = torch.get_rng_state().numpy().tobytes()


def tensors(step: int) -> dict[str, torch.Tensor]:
    return {"model/a": torch.full((3,), float(step)), "exp_avg/a": torch.full((2, 3), 0.5 + step)}


def save(folder: Path, step: int, *, keep: int = 2) -> Path:
    counters = Counters(step=step, updates=2 * step, skips=1, rng=RNG)
    return checkpoint.save(folder, tensors(step), counters, World(), keep=keep)


def loaded_step(folder: Path) -> int | None:
    """The step of the newest complete checkpoint, after reading all of it."""
    path = checkpoint.newest(folder)
    if path is None:
        return None
    found = {name: torch.zeros_like(tensor) for name, tensor in tensors(0).items()}
    checkpoint.load(path, found, World())
    step = checkpoint.read_counters(path).step
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors(step).items())
    return step


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = save(tmp_path, 7)
    assert loaded_step(tmp_path) == 7
    assert checkpoint.read_counters(path) == Counters(step=7, updates=14, skips=1, rng=RNG)


def test_tensors_of_a_checkpoint_are_safetensors_and_json_only(tmp_path: Path) -> None:
    assert {file.suffix or file.name for file in save(tmp_path, 1).iterdir()} == {".safetensors", ".json", "DONE"}


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "absent") is None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000003", "step-000004"]


def test_milestones_are_kept_for_good(tmp_path: Path) -> None:
    for step in range(1, 10):
        counters = Counters(step=step, updates=step, skips=0, rng=RNG)
        checkpoint.save(tmp_path, tensors(step), counters, World(), keep=2, keep_every=3)
    # every third, and the newest two
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["3", "6", "8", "9"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_leaves_the_last_checkpoint_and_gives_back_its_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        save(disk, 1)
        large = {"model/a": torch.ones(1 << 19)}  # 2 MiB
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number says which
            checkpoint.save(disk, large, Counters(step=2, updates=0, skips=0, rng=RNG), World(), keep=1)
        assert is_full(caught.value)
        assert [path.name for path in disk.iterdir()] == ["step-000001"]
        assert loaded_step(disk) == 1
        save(disk, 3)
        assert loaded_step(disk) == 3
    finally:
        subprocess.run(["umount", str(disk)], check=True)


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.mark.parametrize("survived", range(12))
def test_a_kill_at_any_point_of_a_save_leaves_a_loadable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    save(tmp_path, 1, keep=1)
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
        patch.setattr(checkpoint, "_write_shards", counted(checkpoint._write_shards))
        patch.setattr(checkpoint, "fsync", counted(checkpoint.fsync))
        patch.setattr(folders, "fsync", counted(folders.fsync))
        patch.setattr(Path, "rename", counted(Path.rename))
        patch.setattr(Path, "write_bytes", counted(Path.write_bytes))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        try:
            save(tmp_path, 2, keep=1)
            finished = True
        except Killed:
            finished = False
    assert loaded_step(tmp_path) == 2 if finished else loaded_step(tmp_path) in (1, 2)
    save(tmp_path, 3, keep=1)  # what the kill left behind does not stand in the way
    assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
@pytest.mark.parametrize("damage", ["truncated", "removed"])
def test_a_damaged_file_is_skipped_and_named(
    tmp_path: Path, suffix: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    (path,) = save(tmp_path, 2).glob(f"*{suffix}")
    if damage == "removed":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2)
    assert loaded_step(tmp_path) == 1
    assert any(path.name in str(record.__dict__.get("cause")) for record in caplog.records)


def test_a_checkpoint_without_its_mark_is_incomplete(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / checkpoint.DONE).unlink()
    assert checkpoint.damage(path) == "it was not completed"
    assert checkpoint.newest(tmp_path) is None
