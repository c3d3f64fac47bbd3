"""The library `datasets` is an extra: what needs it is skipped without it. The hub itself is never asked."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from services.filter import hub
from services.filter.dataset import load
from tests.unit.filter.test_schema import VERL

ROWS: list[dict[str, Any]] = [{"question": f"{n} + 1?", "answer": f"so\n#### {n + 1}"} for n in range(5)]


def test_without_the_library_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"set openai/gsm8k needs the library `datasets`.*pip install 'dapo\[data\]'"):
        hub.rows("openai/gsm8k", {})


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UserError, match="unknown option `spilt`; known are config, split, revision"):
        hub.rows("openai/gsm8k", {"spilt": "test"})


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return library


def golds(name: str) -> list[str]:
    return [row.task.gold for row in load([name])[0].found.rows]


def test_a_set_that_was_saved_to_disk_is_read(datasets: Any, tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    assert golds(str(tmp_path / "one")) == ["1", "2", "3", "4", "5"]


def test_of_several_splits_train_is_taken_or_the_one_named(datasets: Any, tmp_path: Path) -> None:
    splits = {"train": datasets.Dataset.from_list(ROWS[:3]), "test": datasets.Dataset.from_list(ROWS[3:])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "two")
    assert golds(str(tmp_path / "two")) == ["1", "2", "3"]
    assert golds(f"{tmp_path / 'two'}?split=test") == ["4", "5"]
    with pytest.raises(UserError, match=r"has no split `dev`; it has train, test: give .*two\?split=NAME"):
        golds(f"{tmp_path / 'two'}?split=dev")


def test_a_folder_of_data_files_is_a_set_nested_columns_and_all(datasets: Any, tmp_path: Path) -> None:
    folder = tmp_path / "repository" / "data"
    folder.mkdir(parents=True)
    datasets.Dataset.from_list([VERL]).to_parquet(folder / "train-00000-of-00001.parquet")
    assert golds(str(folder.parent)) == ["72"]


def test_the_only_split_is_taken_whatever_its_name(datasets: Any, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert len(golds(str(tmp_path / "only"))) == 5


def test_a_folder_without_data_is_said_in_one_line(datasets: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"data set .*empty cannot be loaded: ") as caught:
        golds(str(tmp_path / "empty"))
    assert "\n" not in str(caught.value)
