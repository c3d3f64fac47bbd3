"""Model and data are looked for before anything is started."""

from pathlib import Path

import pytest

from common.config import RunConfig
from common.errors import UserError
from services.cli.inputs import check_data, check_model, looks_like_hub_name
from services.filter.config import FilterConfig


def run(model: str) -> RunConfig:
    return RunConfig(name="r", model=model)


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B-Instruct", "gpt2", "HuggingFaceTB/SmolLM2-135M"])
def test_hub_names_pass(model: str) -> None:
    check_model(run(model))


@pytest.mark.parametrize("model", ["/no/such/folder", "./model", "a/b/c", "../m", "models/"])
def test_a_path_that_does_not_exist_is_refused(model: str) -> None:
    with pytest.raises(UserError, match="does not exist"):
        check_model(run(model))


def test_a_name_beside_an_existing_folder_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not looks_like_hub_name("cache/demo-model")
    assert looks_like_hub_name("other/demo-model")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json"):
        check_model(run(str(tmp_path)))


def test_a_row_without_an_answer_is_named_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "1+1?", "answer": "2"}\n{"prompt": "2+2?", "answer": ""}\n')
    with pytest.raises(UserError, match=r"rows\.jsonl.*row 2"):
        check_data(FilterConfig(data=str(path)), run("none"))
