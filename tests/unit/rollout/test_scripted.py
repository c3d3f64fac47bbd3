"""The engine for tests and simulation: repeatable, overtaken by versions, and lying only when told to."""

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common import weights
from common.messages import ChatMessage
from services.cli.demo.tiny_model import make_tokenizer
from services.rollout.config import Lie, ScriptedConfig
from services.rollout.engine import Completion, EngineError, Request
from services.rollout.scripted import ScriptedEngine, ScriptedTemplate
from services.rollout.whole import check_whole


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ScriptedTemplate:
    folder = tmp_path_factory.mktemp("model")
    make_tokenizer().save_pretrained(folder)
    return ScriptedTemplate(str(folder))


def version(folder: Path, number: int) -> Path:
    """A published version of one tensor."""
    from safetensors.numpy import save_file

    weights.publish(folder, number, lambda path: save_file({"a": np.full(3, float(number), np.float32)}, path))
    return weights.version_folder(folder, number)


def request(template: ScriptedTemplate, *, seed: int = 1, n: int = 8) -> Request:
    ids = template.prompt_ids([ChatMessage(role="user", content="Say 47")])
    return Request(id="g", prompt_ids=ids, n=n, temperature=1.0, max_tokens=48, seed=seed)


async def play(template: ScriptedTemplate, tmp_path: Path, config: ScriptedConfig) -> list[Completion]:
    engine = ScriptedEngine(config, template)
    await engine.load(0, version(tmp_path, 0))
    return await engine.generate(request(template))


async def test_a_group_depends_on_its_seed_alone_and_some_of_it_is_right(
    template: ScriptedTemplate, tmp_path: Path
) -> None:
    first, again = [await play(template, tmp_path, ScriptedConfig(seconds=0.0)) for _ in range(2)]
    assert first == again
    answers = [template.text(completion.token_ids).split("\\boxed")[1] for completion in first]
    assert set(answers) == {"{47}", "{48}"}
    check_whole("g", first, n=8, oldest=0, newest=0)


async def test_a_version_that_is_loaded_meanwhile_writes_the_rest(template: ScriptedTemplate, tmp_path: Path) -> None:
    engine = ScriptedEngine(ScriptedConfig(seconds=0.2), template)
    await engine.load(0, version(tmp_path, 0))
    group = asyncio.create_task(engine.generate(request(template)))
    await asyncio.sleep(0.01)
    await engine.load(1, version(tmp_path, 1))
    completions = await group
    check_whole("g", completions, n=8, oldest=0, newest=1)
    assert {span.version for completion in completions for span in completion.spans} == {0, 1}


@pytest.mark.parametrize("lie", ["version", "old_version", "nan", "empty", "short", "aborted"])
async def test_every_lie_is_found(template: ScriptedTemplate, tmp_path: Path, lie: Lie) -> None:
    engine = ScriptedEngine(ScriptedConfig(seconds=0.0, lies=[lie], lie_share=0.99), template)
    await engine.load(5, version(tmp_path, 5))
    found = 0
    for seed in range(20):
        try:
            check_whole("g", await engine.generate(request(template, seed=seed)), n=8, oldest=5, newest=5)
        except EngineError:
            found += 1
    assert found >= 15  # 19.8 of 20 are expected


def test_it_needs_neither_torch_nor_vllm() -> None:
    code = "import sys, services.rollout.scripted, services.rollout.service; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "vllm", "transformers"} & set(loaded)
