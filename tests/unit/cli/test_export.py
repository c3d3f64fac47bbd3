import json
from pathlib import Path

import pytest
import torch

from common import weights
from services.cli import export
from services.cli.evaluate import subject
from services.learner import publishing
from services.learner.model import Policy
from tests.unit.learner.models import tiny_policy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose versions 2 and 3 are in the store; the model is the tiny one with a tokenizer of digits."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    start = tmp_path / "start"
    tiny_policy().model.save_pretrained(start)
    vocabulary = {"<eos>": 0, **{str(n): n for n in range(1, 64)}}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<eos>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>")
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.save_pretrained(start)
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    text = f'[run]\nname = "r"\nmodel = "{start}"\nfolder = "{tmp_path}/runs"\n[filter]\ndata = "rows.jsonl"\n'
    (folder / "config.toml").write_text(text)
    for version in (2, 3):
        tensors = publishing.published(policy_of(version), torch.float32)
        weights.publish(folder / "weights", version, lambda path, t=tensors: publishing.write(path, t, torch.float32))
    return folder


def policy_of(version: int) -> Policy:
    return tiny_policy(seed=version)


@pytest.mark.parametrize(("step", "expected"), [(None, 3), (2, 2)])
def test_the_exported_folder_is_the_policy(run: Path, tmp_path: Path, step: int | None, expected: int) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert export.export(run, tmp_path / "out", step=step, dtype=None) == expected
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    original = policy_of(expected)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, original.named_parameters()[name]), name
    assert model.lm_head.weight is model.model.embed_tokens.weight  # tied, as in the starting model
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == "{{ messages[0].content }}"


def test_the_dtype_can_be_chosen(run: Path, tmp_path: Path) -> None:
    export.export(run, tmp_path / "out", step=None, dtype="bfloat16")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_folder_that_is_not_empty_is_not_overwritten(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    assert export.main([str(run), str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "out" / "mine").read_text() == "x"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent", "out"], "there is no run in absent"),
        ([".", "out"], "is not a run folder: it has no config.toml"),
        (["{run}", "out", "--step", "7"], "has no weights of step 7, only of 2, 3"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    assert export.main([word.format(run=run) for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_damaged_weights_are_not_exported(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from common.errors import DapoError

    monkeypatch.setattr(export, "_load", lambda model, tensors: None)  # as if the weights did not reach the model
    with pytest.raises(DapoError, match="does not hold the published weights"):
        export.export(run, tmp_path / "out", step=None, dtype=None)
    assert not (tmp_path / "out").exists()


def test_a_version_is_linked_so_that_the_run_may_retire_it(run: Path, tmp_path: Path) -> None:
    policy = subject.link(run, 3, tmp_path / "store")
    weights.retire(run / "weights", keep=0)
    assert weights.read_manifest(Path(policy.path)).digest == policy.digest
    assert (Path(policy.path) / weights.TENSORS).exists()


def test_a_run_without_weights_says_so(tmp_path: Path) -> None:
    from common.errors import UserError

    with pytest.raises(UserError, match="has published no weights yet"):
        subject.published(tmp_path, None)
