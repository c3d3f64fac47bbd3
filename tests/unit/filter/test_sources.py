from pathlib import Path

import pytest

from common.errors import UserError
from services.filter import gym, hub
from services.filter.sources import raw_rows, source


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("openai/gsm8k?config=main&split=test", "openai/gsm8k", {"config": "main", "split": "test"}),
        ("gym:leg_counting?size=5", "gym:leg_counting", {"size": "5"}),
        ("data/rows.jsonl", "data/rows.jsonl", {}),
    ],
)
def test_a_name_is_taken_apart(text: str, name: str, options: dict[str, str]) -> None:
    assert source(text)[1:] == (name, options)


def test_a_file_whose_name_has_a_question_mark_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "why?.jsonl"
    path.write_text('{"a": 1}\n')
    assert list(raw_rows(source(str(path)))) == [(1, {"a": 1})]
    assert source(str(path)).label == "why?"


def test_an_option_without_a_value_is_refused() -> None:
    with pytest.raises(UserError, match="option `split` is not of the form key=value"):
        source("openai/gsm8k?split")


def test_a_set_is_called_by_the_stem_of_its_file_or_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    labels = [source(text).label for text in (str(tmp_path / "rows.csv"), "openai/gsm8k?split=test", "gym:countdown")]
    assert labels == ["rows", "openai/gsm8k", "countdown"]


def test_what_is_no_file_is_asked_of_the_hub_only_if_it_can_be_a_name_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(hub, "rows", lambda name, options: asked.append(name) or iter(()))
    monkeypatch.setattr(gym, "rows", lambda name, options: asked.append(f"gym {name}") or iter(()))
    for text in ("openai/gsm8k", str(tmp_path), "gym:countdown"):
        list(raw_rows(source(text)))
    assert asked == ["openai/gsm8k", str(tmp_path), "gym countdown"]
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    for text in ("rows.jsonl", "owner/rows.jsonl", "data/rows", "a/b/c"):
        with pytest.raises(UserError, match=f"data file {text} does not exist"):
            raw_rows(source(text))
