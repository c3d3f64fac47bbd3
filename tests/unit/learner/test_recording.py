"""Batches kept for replay."""

from pathlib import Path

import pytest

from common.errors import DapoError
from services.learner import recording


def test_what_is_recorded_is_read_back_frame_by_frame(tmp_path: Path) -> None:
    recording.record(tmp_path / "b", 1, [b"head", b"", b"\x00" * 9])
    recording.record(tmp_path / "b", 0, [b"first"])
    assert recording.steps(tmp_path / "b") == [0, 1]
    assert recording.read(tmp_path / "b", 1) == [b"head", b"", b"\x00" * 9]


def test_a_batch_that_comes_again_must_be_the_same(tmp_path: Path) -> None:
    recording.record(tmp_path, 0, [b"a", b"b"])
    recording.record(tmp_path, 0, [b"a", b"b"])
    with pytest.raises(DapoError, match="batch 0 was delivered twice with different content"):
        recording.record(tmp_path, 0, [b"ab"])
