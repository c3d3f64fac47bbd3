"""Options that change memory and speed, and adapters."""

from pathlib import Path

import pytest
import torch

from services.learner import lora, publishing
from services.learner.attention import segments
from services.learner.config import LearnerConfig
from services.learner.model import Policy, _prepare, compute_dtype, layers
from services.learner.packing import pack
from tests.unit.learner.models import current_logps, make_samples, parameters, run_step, tiny_policy

LENGTHS = [4, 17, 9, 2]


def test_activation_checkpointing_gives_the_same_gradients_bit_for_bit() -> None:
    _, expected = run_step(tiny_policy(), make_samples(LENGTHS))
    policy = tiny_policy()
    _prepare(policy.model, LearnerConfig(activation_checkpointing=True))
    assert all(layer.training for layer in layers(policy.model))
    _, gradient = run_step(policy, make_samples(LENGTHS))
    assert torch.equal(gradient, expected)


def test_activation_checkpointing_keeps_fewer_activations() -> None:
    def kept(policy: Policy) -> int:
        bytes_kept = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal bytes_kept
            bytes_kept += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            policy.scores(pack(make_samples([60]), [0], policy.device))
        return bytes_kept

    checkpointed = tiny_policy()
    _prepare(checkpointed.model, LearnerConfig(activation_checkpointing=True))
    assert kept(checkpointed) < 0.7 * kept(tiny_policy())


def test_bfloat16_compute_leaves_weights_gradients_and_log_probabilities_in_float32() -> None:
    policy = tiny_policy()
    policy.scorer.compute = torch.bfloat16
    scores = policy.scores(pack(make_samples(LENGTHS), range(4), policy.device))
    assert scores.logp_N.dtype == torch.float32
    _, gradient = run_step(policy, make_samples(LENGTHS))
    _, expected = run_step(tiny_policy(), make_samples(LENGTHS))
    assert gradient.dtype == torch.float32
    assert parameters(policy).dtype == torch.float32
    cosine = torch.nn.functional.cosine_similarity(gradient, expected, dim=0)
    assert cosine > 0.99


@pytest.mark.parametrize(("compute", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_cpu_computes_in_float32_unless_told(compute: str, expected: torch.dtype) -> None:
    assert compute_dtype(LearnerConfig(compute=compute), torch.device("cpu")) == expected  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_layers_give_the_same_gradients() -> None:
    _, expected = run_step(tiny_policy(), make_samples(LENGTHS))
    policy = tiny_policy()
    for layer in layers(policy.model):
        layer.compile(dynamic=True, backend="aot_eager")
    _, gradient = run_step(policy, make_samples(LENGTHS))
    assert torch.allclose(gradient, expected, atol=1e-6)


def with_adapters(rank: int = 4) -> Policy:
    policy = tiny_policy()
    lora.inject(policy.model, LearnerConfig(lora_rank=rank, lora_alpha=8))
    return policy


def test_only_adapters_are_trained() -> None:
    policy = with_adapters()
    before = {name: p.detach().clone() for name, p in policy.named_parameters().items()}
    assert policy.trained_parameters()
    assert all(lora.is_adapter(name) for name in policy.trained_parameters())
    run_step(policy, make_samples(LENGTHS), lr=1e-2)
    changed = {name for name, p in policy.named_parameters().items() if not torch.equal(p, before[name])}
    assert changed
    assert changed <= set(policy.trained_parameters())


def test_fresh_adapters_leave_the_policy_as_it_was() -> None:
    samples = make_samples(LENGTHS)
    for one, other in zip(current_logps(with_adapters(), samples), current_logps(tiny_policy(), samples), strict=True):
        assert torch.equal(torch.tensor(one), torch.tensor(other))


def test_merged_weights_are_the_policy_with_its_adapters() -> None:
    policy = with_adapters()
    run_step(policy, make_samples(LENGTHS), lr=3e-2)
    merged = tiny_policy()
    tensors = {t.name: t.make() for t in publishing.published(policy, torch.float32)}
    assert set(tensors) == set(merged.named_parameters())
    with torch.no_grad():
        for name, parameter in merged.named_parameters().items():
            parameter.copy_(tensors[name])
    samples = make_samples(LENGTHS)
    for one, other in zip(current_logps(policy, samples), current_logps(merged, samples), strict=True):
        assert torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-5)
    moved = torch.cat([torch.tensor(logp) for logp in current_logps(policy, samples)])
    base = torch.cat([torch.tensor(logp) for logp in current_logps(tiny_policy(), samples)])
    assert (moved - base).abs().max() > 1e-3  # or the comparison would hold of itself


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_published_file_is_what_safetensors_reads(tmp_path: Path, dtype: torch.dtype) -> None:
    from safetensors.torch import load_file

    policy = tiny_policy()
    publishing.write(tmp_path / "model.safetensors", publishing.published(policy, dtype), dtype)
    loaded = load_file(tmp_path / "model.safetensors")
    assert set(loaded) == set(policy.named_parameters())
    for name, parameter in policy.named_parameters().items():
        assert torch.equal(loaded[name], parameter.detach().to(dtype))


def test_publishing_holds_one_tensor_at_a_time(tmp_path: Path) -> None:
    alive = most = 0

    class Counted:
        def __init__(self, tensor: torch.Tensor) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            self._tensor = tensor

        def flatten(self) -> torch.Tensor:
            return self._tensor.flatten()

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    tensors = publishing.published(tiny_policy(), torch.float32)
    counted = [t._replace(make=lambda make=t.make: Counted(make())) for t in tensors]
    publishing.write(tmp_path / "model.safetensors", counted, torch.float32)
    assert most == 1


def test_a_model_without_pluggable_attention_is_refused() -> None:
    from common.errors import UserError
    from services.learner.model import _refuse_uncovered

    model = tiny_policy().model
    model._supports_attention_backend = False
    with pytest.raises(UserError, match="its attention is not pluggable"):
        _refuse_uncovered("old", model)


def test_bounds_are_cumulative_lengths() -> None:
    found = segments([3, 1, 2], torch.device("cpu"))
    assert found.bounds_S1.tolist() == [0, 3, 4, 6]
    assert (found.bounds_S1.dtype, found.longest) == (torch.int32, 3)
