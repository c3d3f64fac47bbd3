import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from common import weights
from common.errors import DapoError, UserError
from services.cli import export
from services.cli.evaluate import subject
from services.learner import publishing
from services.learner.model import Policy
from services.learner.publisher import Publisher
from services.learner.ranks import World
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
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1  # who may read one may read all
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, original.named_parameters()[name]), name
    assert model.lm_head.weight is model.model.embed_tokens.weight  # tied, as in the starting model
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == "{{ messages[0].content }}"


def test_the_dtype_can_be_chosen(run: Path, tmp_path: Path) -> None:
    export.export(run, tmp_path / "out", step=None, dtype="bfloat16")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"


def test_large_weights_are_written_as_several_files(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(export, "SHARD", "20KB")
    export.export(run, tmp_path / "out", step=None, dtype=None)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 1
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert torch.equal(model.model.norm.weight, policy_of(3).model.model.norm.weight)


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
    monkeypatch.setattr(export, "_load", lambda model, tensors: None)  # as if the weights did not reach the model
    with pytest.raises(DapoError, match="does not hold the published weights"):
        export.export(run, tmp_path / "out", step=None, dtype=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "start"]  # nothing is left, not even in part


def test_weights_that_are_not_what_their_manifest_says_are_not_exported_or_evaluated(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "weights" / "v000003" / weights.TENSORS
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    assert export.main([str(run), str(tmp_path / "out")]) == 2
    assert "are damaged, their digests do not hold: choose another with --step" in capsys.readouterr().err
    with pytest.raises(UserError, match="are damaged"):
        subject.link(run, 3, tmp_path / "store")
    assert export.main([str(run), str(tmp_path / "out"), "--step", "2"]) == 0


def test_weights_of_another_model_are_not_exported(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = {"model.norm.weight": torch.ones(3)}
    weights.publish(run / "weights", 4, lambda path: save_file(torn, path))
    assert export.main([str(run), str(tmp_path / "out")]) == 1
    assert "are not those of the run's [run] model" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_exports_into_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    with export.staged(tmp_path / "a") as first, export.staged(tmp_path / "b") as second:
        (first / "x").write_text("1")
        (second / "x").write_text("2")
    assert [(tmp_path / name / "x").read_text() for name in "ab"] == ["1", "2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_an_untied_head_and_the_starting_models_generation_config_are_exported(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2ForCausalLM

    start = tmp_path / "start"
    settings = policy_of(0).model.config
    settings.tie_word_embeddings = False
    model = Qwen2ForCausalLM(settings)
    model.save_pretrained(start)
    GenerationConfig(eos_token_id=[0, 7], temperature=0.5, do_sample=True).save_pretrained(start)
    changed = {name: parameter.detach() + 1 for name, parameter in model.named_parameters()}
    weights.publish(run / "weights", 9, lambda path: save_file(changed, path))
    assert export.export(run, tmp_path / "out", step=None, dtype=None) == 9
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert torch.equal(read.lm_head.weight, changed["lm_head.weight"])
    assert not torch.equal(read.lm_head.weight, read.model.embed_tokens.weight)
    assert read.generation_config.eos_token_id == [0, 7]


def test_a_version_is_linked_so_that_the_run_may_retire_it(run: Path, tmp_path: Path) -> None:
    own = subject.own_folder(run)
    policy = subject.link(run, 3, own / "store")
    assert (Path(policy.path) / weights.TENSORS).samefile(run / "weights" / "v000003" / weights.TENSORS)  # no copy
    weights.retire(run / "weights", keep=0)
    assert weights.read_manifest(Path(policy.path)).digest == policy.digest
    assert (Path(policy.path) / weights.TENSORS).exists()


def test_a_run_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has published no weights yet"):
        subject.published(tmp_path, None)


def test_a_version_that_is_a_delta_is_exported_and_evaluated_whole(run: Path, tmp_path: Path) -> None:
    policy = policy_of(0)
    publisher = Publisher(policy=policy, world=World(), store=run / "weights", dtype=torch.bfloat16, snapshot_every=9)
    publisher.publish(10)
    with torch.no_grad():
        policy.model.model.norm.weight += 1
    manifest = publisher.publish(11)
    assert manifest is not None
    assert manifest.base == 10
    assert export.export(run, tmp_path / "out", step=None, dtype=None) == 11
    assert subject.link(run, 11, tmp_path / "store").digest == manifest.digest
