"""The file of an incarnation."""

import time
from pathlib import Path

import msgpack
import pytest

from common.history import History


def test_a_later_incarnation_sorts_after_an_earlier_one_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(tmp_path, "filter-0").close()
    (first,) = tmp_path.iterdir()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000)
    History(tmp_path, "filter-0").close()
    assert max(tmp_path.iterdir(), key=lambda path: path.stem.rpartition("-")[2]) != first


def test_an_event_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    history = History(tmp_path, "learner-0")
    history.append("resumed", step=3)
    with next(tmp_path.iterdir()).open("rb") as file:
        (record,) = msgpack.Unpacker(file)
    assert (record["event"], record["step"]) == ("resumed", 3)
    history.close()
