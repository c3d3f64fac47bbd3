import json
from pathlib import Path

import pytest

from common import config
from common.config import RunConfig
from services.cli import prepare


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A run whose model and data are there."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    rows = [{"prompt": f"{number} + 1?", "answer": str(number + 1)} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "c.toml"
    path.write_text(
        f'[run]\nname = "r"\nmodel = "{tmp_path}/model"\nfolder = "{tmp_path}/runs"\n'
        f'[filter]\ndata = "{tmp_path}/rows.jsonl"\non_long_prompt = "drop"\n'
    )
    return path


def test_services_find_the_resolved_configuration_behind_the_link(configuration: Path, tmp_path: Path) -> None:
    link = tmp_path / "runs" / "current"
    words = [str(configuration), "--link", str(link), "run.broker=tcp://broker:5570"]
    assert prepare.main(words) == 0
    run = config.section(config.read(link / "config.toml"), "run", RunConfig)
    assert (run.name, run.broker) == ("r", "tcp://broker:5570")
    assert not link.readlink().is_absolute()  # the folder may be mounted elsewhere


def test_a_run_with_progress_is_gone_on_with(configuration: Path, tmp_path: Path) -> None:
    assert prepare.main([str(configuration)]) == 0
    (tmp_path / "runs" / "r" / "weights" / "v000000").mkdir(parents=True)
    assert prepare.main([str(configuration), "run.steps=7"]) == 0
    assert config.read(tmp_path / "runs" / "r" / "config.toml").tables["run"]["steps"] == 7
    assert (tmp_path / "runs" / "r" / "weights" / "v000000").exists()


def test_a_run_with_progress_is_not_gone_on_with_under_other_mathematics(
    configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main([str(configuration)]) == 0
    (tmp_path / "runs" / "r" / "weights" / "v000000").mkdir(parents=True)
    assert prepare.main([str(configuration), "learner.lr=0.5"]) == 2
    assert "other values of learner.lr (" in capsys.readouterr().err


def test_the_link_moves_from_run_to_run_and_replaces_nothing_else(
    configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "runs" / "current"
    for name in ("a", "b"):
        assert prepare.main([str(configuration), f"run.name={name}", "--link", str(link)]) == 0
    assert link.resolve() == (tmp_path / "runs" / "b").resolve()
    (tmp_path / "mine").mkdir()
    assert prepare.main([str(configuration), "--link", str(tmp_path / "mine")]) == 2
    assert "exists and is no symbolic link" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_one_sentence(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main([str(configuration), "run.model=/nowhere/model"]) == 2
    assert capsys.readouterr().err.startswith("dapo prepare: model folder /nowhere/model does not exist")
