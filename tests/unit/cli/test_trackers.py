"""The numbers of a run in TensorBoard and W&B: every step once, and anew after the learner went back."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from services.cli.board import Board
from services.cli.trackers import main as track
from services.cli.trackers import tracking
from services.cli.trackers.follow import Follower, numbers
from services.cli.trackers.tracker import check
from services.cli.trackers.tracking import Tracking
from tests.run_folders import make_run


class Memory:
    """A tracker that remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def log(self, step: int, values: Mapping[str, float], time: float) -> None:
        self.told.append((step, dict(values), time))

    def rewind(self, step: int) -> None:
        self.told.append(("rewind", step))

    def close(self) -> None:
        self.told.append(("close",))


def write(path: Path, *steps: tuple[int, float]) -> None:
    rows = [{"step": step, "time": time, "loss": 1.0 / time} for step, time in steps]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_every_line_is_told_once_as_it_comes(tmp_path: Path) -> None:
    memory, path = Memory(), tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path, [memory])
    follower.tell_news()
    write(path, (0, 10.0))
    follower.tell_news()
    write(path, (0, 10.0), (1, 20.0))
    (tmp_path / "evals.jsonl").write_text('{"version": 2, "accuracy": 0.5, "pass@2": 0.75, "time": 21.0}\n')
    follower.tell_news()
    follower.tell_news()
    assert memory.told == [
        (0, {"train/loss": 0.1}, 10.0), (1, {"train/loss": 0.05}, 20.0),
        (2, {"eval/accuracy": 0.5, "eval/pass@2": 0.75}, 21.0),
    ]  # fmt: skip


def test_a_learner_that_went_back_is_followed(tmp_path: Path) -> None:
    memory, path = Memory(), tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path, [memory])
    write(path, (0, 10.0), (1, 20.0), (2, 30.0))
    follower.tell_news()
    del memory.told[:]
    # resumed at step 1, and already as far as before when somebody looks
    write(path, (0, 10.0), (1, 40.0), (2, 50.0), (3, 60.0))
    follower.tell_news()
    assert [told[:2] if told[0] == "rewind" else told[0] for told in memory.told] == [("rewind", 1), 1, 2, 3]


def test_what_is_no_number_is_left_out() -> None:
    row = {"step": 1, "version": 2, "time": 3.0, "a": 1, "b": float("nan"), "c": None, "d": "text"}
    assert numbers("train", row) == {"train/a": 1.0}


def test_a_tracker_that_is_unknown_is_one_sentence() -> None:
    with pytest.raises(UserError, match="tracker `mlflow` is unknown: known are tensorboard, wandb"):
        check(["mlflow"])


def test_a_package_that_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package wandb: pip install 'dapo\[track\]'"):
        check(["wandb"])


def test_a_tracker_that_fails_is_said_once_and_harms_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(tracking, "open_tracker", refuse)
    board = Board()
    with Tracking(["tensorboard"], tmp_path, {}, board):
        pass
    assert "trackers stopped (OSError: no space left on device)" in board.notes.get_nowait()
    assert board.notes.empty()


def test_without_trackers_nothing_is_started(tmp_path: Path) -> None:
    before = threading.active_count()
    with Tracking([], tmp_path, {}, Board()):
        assert threading.active_count() == before


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra `track`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = make_run(tmp_path / "run")
    assert track.main([str(folder), "--to", "tensorboard"]) == 0
    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    accuracy = found.Scalars("eval/accuracy")
    assert [(event.step, event.value) for event in accuracy] == [(0, 0.25), (6, 0.5), (12, 0.75)]
    assert len(found.Scalars("train/reward")) == 12
    assert b'"model": "tiny"' in found.Tensors("configuration")[0].tensor_proto.string_val[0]


def test_tensorboard_forgets_the_steps_that_are_trained_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra `track`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from services.cli.trackers.tensorboard import TensorBoard

    board = TensorBoard(tmp_path, {})
    for step in range(4):
        board.log(step, {"train/loss": float(step)}, 1.0 + step)
    board.rewind(2)
    board.log(2, {"train/loss": 20.0}, 9.0)
    board.close()
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("train/loss")] == [(0, 0.0), (1, 1.0), (2, 20.0)]


def test_wandb_works_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra `track`")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = make_run(tmp_path / "run", steps=2)
    assert track.main([str(folder), "--to", "wandb"]) == 0
    (file,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    content = file.read_bytes()
    for part in (b"train/reward", b"eval/accuracy", b"tiny"):
        assert part in content
    assert b"the answer is" not in content  # no texts


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert track.main([str(tmp_path), "--to", "tensorboard"]) == 2
    assert "is not a run folder" in capsys.readouterr().err
