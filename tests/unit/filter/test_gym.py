"""The library `reasoning-gym` is an extra: a stand-in takes its place; one test asks the real one if it is there."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from common.errors import UserError
from services.filter import gym
from services.filter.dataset import load


class StandIn(ModuleType):
    """Counts how often it generates."""

    def __init__(self) -> None:
        super().__init__("reasoning_gym")
        self.calls: list[dict[str, Any]] = []

    def create_dataset(self, name: str, *, size: int, seed: int, most: int = 9) -> list[dict[str, Any]]:
        self.calls.append({"name": name, "size": size, "seed": seed, "most": most})
        return [{"question": f"{seed}: {n}?", "answer": str(n), "metadata": {"levels": (n,)}} for n in range(size)]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.chdir(tmp_path)
    stand_in, factory = StandIn(), ModuleType("reasoning_gym.factory")
    factory.DATASETS = {"leg_counting": None}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reasoning_gym", stand_in)
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", factory)
    return stand_in


def test_rows_are_generated_once_and_then_read_from_the_cache(library: StandIn) -> None:
    rows = [load(["gym:leg_counting?size=3&seed=7&most=5"])[0].found.rows for _ in range(2)]
    assert rows[0] == rows[1]
    assert [(row.chat[0].content, row.task.gold, row.task.verifier) for row in rows[0]][:1] == [
        ("7: 0?", "0", "reasoning_gym")
    ]
    assert rows[0][0].category == "reasoning_gym/leg_counting"
    assert library.calls == [{"name": "leg_counting", "size": 3, "seed": 7, "most": 5}]


def test_other_settings_are_another_file(library: StandIn) -> None:
    for text in ("gym:leg_counting", "gym:leg_counting?seed=1"):
        assert len(load([text])[0].found.rows) == 1000
    assert len(list(gym.CACHE.iterdir())) == 2


def test_a_cached_set_needs_no_library(library: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    load(["gym:leg_counting?size=3"])
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    assert len(load(["gym:leg_counting?size=3"])[0].found.rows) == 3
    with pytest.raises(UserError, match=r"needs the library `reasoning-gym`.*pip install 'dapo\[data\]'"):
        load(["gym:leg_counting?size=4"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gym:leg_countin", "no data set of reasoning-gym; did you mean `leg_counting`"),
        ("gym:xyz", "no data set of reasoning-gym; known are leg_counting"),
        ("gym:leg_counting?lest=3", "cannot be generated with .*lest"),
    ],
)
def test_what_cannot_be_generated_is_one_sentence(library: StandIn, text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load([text])
    assert not list(gym.CACHE.glob("*")) if gym.CACHE.exists() else True


def test_the_real_library_gives_rows_that_a_run_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("reasoning_gym")
    monkeypatch.chdir(tmp_path)
    (data,) = load(["gym:leg_counting?size=5&seed=1"])
    assert (len(data.found.rows), data.refusals) == (5, [])
    assert all(row.task.gold.isdigit() for row in data.found.rows)
