"""The real vLLM engine against plain transformers: same weights, same log-probabilities, before and after an update."""

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from safetensors.torch import save_file

from common import weights
from common.config import RunConfig
from common.messages import Policy as Announced
from services.learner.model import Policy
from services.learner.publisher import Publisher
from services.learner.ranks import World
from services.rollout.__main__ import set_environment
from services.rollout.compress import Compression, compressed
from services.rollout.config import RolloutConfig
from services.rollout.engine import Completion, LoadRefusedError, Request
from services.rollout.hostcopy import HostCopy

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
PROMPTS = [list(range(5 + n, 15 + 2 * n)) for n in range(8)]
EOS = 0
"""That of the tokenizer too, which transformers makes up for a folder without one."""
LIMIT = 1e-5
"""Mean |log-probability difference| in float32; it is about 1e-7 here."""


class Setting:
    """An engine, three models with tied embeddings, and the store that the first two are published in."""

    def __init__(self, folder: Path) -> None:
        from transformers import Qwen2Config, Qwen2ForCausalLM

        self.model, self.store = folder / "model", folder / "weights"
        self.copy = HostCopy()
        config = Qwen2Config(
            vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, eos_token_id=EOS,
        )  # fmt: skip
        self.policies = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            self.policies.append(Qwen2ForCausalLM(config).eval())
            with torch.no_grad():
                self.policies[-1].model.embed_tokens.weight.mul_(4)  # far from uniform, so that a stale head shows
        self.policies[0].save_pretrained(self.model)
        for version, policy in enumerate(self.policies):
            self.publish(version, dict(policy.named_parameters()))
        renamed = dict(self.policies[1].named_parameters())
        renamed["model.norm.other"] = renamed.pop("model.norm.weight")
        self.publish(2, renamed)

    def publish(self, version: int, tensors: dict[str, Any]) -> None:
        """Write a version to the store."""
        data = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        weights.publish(self.store, version, lambda path: save_file(data, path))

    async def load(self, version: int) -> None:
        """Load a version from the store."""
        folder = weights.version_folder(self.store, version)
        digest = weights.read_manifest(folder).digest
        tensors = self.copy.prepare(Announced(version=version, digest=digest, path=str(folder)))
        await self.engine.load(version, tensors)

    def differences(self, prompt: list[int], sample: Completion, *, temperature: float = 1.0) -> torch.Tensor:
        """|engine - transformers| of each token, under the version that its span names."""
        ids = torch.tensor([prompt + list(sample.token_ids)])
        result = torch.empty(len(sample.token_ids))
        for span in sample.spans:
            with torch.no_grad():
                logits = self.policies[span.version](input_ids=ids).logits[0] / temperature
            at = torch.arange(len(prompt) - 1 + span.start, len(prompt) - 1 + span.end)
            logp = logits[at].log_softmax(-1).gather(-1, ids[0, at + 1, None])[:, 0]
            result[span.start : span.end] = (logp - torch.tensor(sample.logprobs[span.start : span.end])).abs()
        return result


def request(name: str, place: int, *, n: int = 2, temperature: float = 1.0, max_tokens: int = 48) -> Request:
    return Request(id=name, prompt_ids=PROMPTS[place], n=n, temperature=temperature, max_tokens=max_tokens, seed=place)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    set_environment("/")
    from services.rollout.vllm_engine import VllmEngine

    setting = Setting(tmp_path_factory.mktemp("vllm"))
    run = RunConfig(name="t", model=str(setting.model), max_prompt_tokens=64, max_response_tokens=300)
    setting.engine = await VllmEngine.start(run, RolloutConfig(kv_cache_gib=0.1), stop_token_ids=[EOS])
    await setting.load(0)
    yield setting
    setting.engine.close()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_log_probabilities_agree_with_transformers_at_every_temperature(
    setting: Setting, temperature: float
) -> None:
    await setting.load(0)
    groups = await asyncio.gather(
        *(setting.engine.generate(request(f"a{temperature}{p}", p, temperature=temperature)) for p in range(8))
    )
    found = [
        setting.differences(PROMPTS[p], sample, temperature=temperature) for p, g in enumerate(groups) for sample in g
    ]
    assert torch.cat(found).mean() < LIMIT


async def test_tokens_after_an_update_in_flight_come_from_the_new_weights(setting: Setting) -> None:
    await setting.load(0)
    tasks = [asyncio.create_task(setting.engine.generate(request(f"b{p}", p, n=4, max_tokens=300))) for p in range(8)]
    await asyncio.sleep(0.3)
    await setting.load(1)
    samples = [(PROMPTS[p], sample) for p, group in enumerate(await asyncio.gather(*tasks)) for sample in group]
    mixed = [pair for pair in samples if [span.version for span in pair[1].spans] == [0, 1]]
    assert mixed, "no request was in flight"
    assert torch.cat([setting.differences(prompt, sample) for prompt, sample in mixed]).mean() < LIMIT


async def test_a_version_with_a_renamed_tensor_is_refused_and_the_old_one_goes_on(setting: Setting) -> None:
    await setting.load(1)
    with pytest.raises(LoadRefusedError, match=r"model\.norm\.other is .*the model has .*no such tensor|model\.norm"):
        await setting.load(2)
    (sample, _) = await setting.engine.generate(request("c", 3))
    assert {span.version for span in sample.spans} == {1}
    assert setting.differences(PROMPTS[3], sample).mean() < LIMIT


async def test_a_delta_loaded_in_flight_gives_the_tokens_of_a_fresh_engine_on_the_new_weights(
    setting: Setting, tmp_path: Path
) -> None:
    """Versions 3 and 4 are bf16 in the store and float32 in the engine; 4 is a delta that touches the tied head."""
    policy = Policy(copy.deepcopy(setting.policies[0]), temperature=1.0)
    learner = Publisher(policy=policy, world=World(), store=tmp_path, dtype=torch.bfloat16, snapshot_every=9)
    host = HostCopy()
    for version in (3, 4):
        manifest = learner.publish(version)
        assert manifest is not None
        assert manifest.base == (3 if version == 4 else None)
        plain = copy.deepcopy(setting.policies[0])
        plain.load_state_dict({name: p.bfloat16().float() for name, p in policy.model.state_dict().items()})
        setting.policies[len(setting.policies) :] = [plain] * (version + 1 - len(setting.policies))
        with torch.no_grad():
            policy.model.model.embed_tokens.weight[::7] *= 1.5
        folder = weights.version_folder(tmp_path, version)
        tensors = host.prepare(Announced(version=version, digest=manifest.digest, path=str(folder)))
        if version == 3:
            await setting.engine.load(3, tensors)
            tasks = [
                asyncio.create_task(setting.engine.generate(request(f"f{p}", p, n=4, max_tokens=300))) for p in range(8)
            ]
            await asyncio.sleep(0.3)
    await setting.engine.load(4, tensors)
    samples = [(PROMPTS[p], sample) for p, group in enumerate(await asyncio.gather(*tasks)) for sample in group]
    mixed = [pair for pair in samples if [span.version for span in pair[1].spans] == [3, 4]]
    assert mixed, "no request was in flight"
    assert torch.cat([setting.differences(prompt, sample) for prompt, sample in mixed]).mean() < LIMIT


async def test_a_compressed_engine_samples_from_the_compressed_policy_and_says_so_in_its_log_probabilities(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = Compression(prune=0.2, quantize="int8")
    monkeypatch.setattr(setting.engine, "_compress", {"prune": how.prune, "quantize": how.quantize})
    await setting.load(0)
    (sample, _) = await setting.engine.generate(request("g", 1))
    assert setting.differences(PROMPTS[1], sample).mean() > 100 * LIMIT
    plain = setting.policies[0]
    small = {name: compressed(name, tensor, how) for name, tensor in plain.state_dict().items()}
    monkeypatch.setattr(setting, "policies", [copy.deepcopy(plain)])
    setting.policies[0].load_state_dict(small)
    assert setting.differences(PROMPTS[1], sample).mean() < LIMIT


async def test_the_samples_of_a_group_differ_and_a_seed_repeats_them(setting: Setting) -> None:
    first, again = [await setting.engine.generate(request(f"d{n}", 2, n=4)) for n in range(2)]
    assert len({tuple(sample.token_ids) for sample in first}) == 4
    assert [sample.token_ids for sample in first] == [sample.token_ids for sample in again]


async def test_the_stop_token_is_part_of_the_response_with_its_log_probability(setting: Setting) -> None:
    groups = await asyncio.gather(
        *(setting.engine.generate(request(f"e{p}", p, n=16, max_tokens=300)) for p in range(8))
    )
    stopped = [sample for group in groups for sample in group if sample.finish == "stop"]
    assert stopped
    assert all(sample.token_ids[-1] == EOS and EOS not in sample.token_ids[:-1] for sample in stopped)
    assert all(len(sample.logprobs) == len(sample.token_ids) == sample.spans[-1].end for sample in stopped)
