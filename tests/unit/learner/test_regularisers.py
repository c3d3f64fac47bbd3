import dataclasses

import pytest
import torch

from services.learner.logprobs import TokenScores
from services.learner.regularisers import k3, penalty
from tests.unit.learner.models import make_samples, run_step, tiny_policy


def test_k3_is_zero_for_equal_policies_and_positive_otherwise() -> None:
    # d = 0, 1, -1: e^d - d - 1 = 0, 0.718282, 0.367879
    estimate = k3(torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-1.0, -1.0, -2.0]))
    assert estimate.tolist() == pytest.approx([0.0, 0.718282, 0.367879], abs=1e-6)


def test_the_penalty_is_the_weighed_sum_and_nothing_by_default() -> None:
    scores = TokenScores(torch.tensor([-2.0]), torch.tensor([1.5]), torch.tensor([0.1]))
    # 0.1 * 0.718282 - 0.01 * 1.5
    value = penalty(scores, torch.tensor([-1.0]), kl_coef=0.1, entropy_coef=0.01)
    assert value is not None
    assert value.item() == pytest.approx(0.0568282, abs=1e-6)
    assert penalty(scores, None, kl_coef=0.0, entropy_coef=0.0) is None


def test_without_advantages_the_kl_term_pulls_towards_the_reference() -> None:
    samples = [dataclasses.replace(sample, advantage=0.0) for sample in make_samples([9, 12, 4, 7])]
    policy, reference = tiny_policy(), tiny_policy(seed=3).freeze()
    distances = []
    for _ in range(3):
        result, _ = run_step(policy, samples, reference=reference, kl_coef=1.0, lr=2e-4)
        distances.append(result.tally.metrics()["reference_kl"])
    assert distances[0] > distances[1] > distances[2] > 0


def test_the_entropy_term_raises_the_entropy() -> None:
    samples = [dataclasses.replace(sample, advantage=0.0) for sample in make_samples([9, 12, 4, 7])]
    policy = tiny_policy()
    first, second = (run_step(policy, samples, entropy_coef=1.0, lr=1e-2)[0].tally.metrics()["entropy"] for _ in "ab")
    assert second > first
