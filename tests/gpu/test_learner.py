"""The learner's step on a CUDA device, against the same step on the CPU in float32. `pytest -m gpu` runs them."""

import pytest
import torch

from services.learner import doctor
from services.learner.config import LearnerConfig
from services.learner.model import Policy, layers
from services.learner.packing import pack
from services.learner.speed import matmul_peak

pytestmark = pytest.mark.gpu


def on(device: str, compute: torch.dtype) -> Policy:
    """The same random model on a device."""
    policy = doctor.small_policy(LearnerConfig(compute="float32"))
    model = policy.model.to(device)
    return Policy(model, temperature=0.8, compute=compute)


def logps(policy: Policy) -> torch.Tensor:
    samples = doctor.make_samples(policy.model.config.vocab_size)
    with torch.no_grad():
        return policy.scores(pack(samples, range(len(samples)), policy.device)).logp_N.float().cpu()


def gradient(policy: Policy) -> torch.Tensor:
    samples = doctor.make_samples(policy.model.config.vocab_size)
    found = doctor._gradient(policy, samples, LearnerConfig(), 128, budget=100_000)
    return found.float().cpu()


def test_flash_attention_over_packed_samples_scores_as_the_cpu_does() -> None:
    expected, found = logps(on("cpu", torch.float32)), logps(on("cuda", torch.bfloat16))
    assert (found - expected).abs().mean() < 0.02


def test_the_gradient_in_bfloat16_points_where_that_of_float32_does() -> None:
    expected, found = gradient(on("cpu", torch.float32)), gradient(on("cuda", torch.bfloat16))
    assert torch.nn.functional.cosine_similarity(found, expected, dim=0) > 0.99


def test_the_loss_does_not_depend_on_how_a_step_is_cut() -> None:
    settings = LearnerConfig()
    findings = doctor.examine(on("cuda", torch.bfloat16), settings, max_tokens=128, temperature=0.8)
    assert all(finding.holds for finding in findings), findings


def test_compiled_layers_give_the_same_gradient() -> None:
    policy = on("cuda", torch.bfloat16)
    expected = gradient(policy)
    for layer in layers(policy.model):
        layer.compile(dynamic=True)
    assert torch.nn.functional.cosine_similarity(gradient(policy), expected, dim=0) > 0.999


def test_bfloat16_products_are_faster_than_float32_ones() -> None:
    device = torch.device("cuda")
    assert matmul_peak(device, torch.bfloat16) > 1.5 * matmul_peak(device, torch.float32)
