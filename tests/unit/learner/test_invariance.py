"""Loss, gradients and weights do not depend on how a step is cut: every objective, every way of cutting."""

import dataclasses

import numpy as np
import pytest
import torch

from services.learner import step as step_module
from services.learner.normaliser import token_weights
from services.learner.objectives import OBJECTIVES
from services.learner.samples import TrainSample
from tests.unit.learner.models import current_logps, make_samples, run_step, tiny_policy, with_shared_prompts

LENGTHS = [1, 17, 3, 29, 8, 8, 2, 23, 5, 11, 30, 1, 14, 6, 9, 20]
"""Sixteen unlike lengths: four groups of four."""


def off_policy(dtype: torch.dtype) -> list[TrainSample]:
    """Samples whose engine was near the policy, so that clips and weights act on some tokens and not on others.

    Two of the four groups share their prompt.
    """
    samples = make_samples(LENGTHS)
    samples = [*with_shared_prompts(samples)[:8], *samples[8:]]
    rng = np.random.default_rng(1)
    return [
        dataclasses.replace(
            sample,
            mu_logp_T=(logp + 0.3 * rng.normal(size=len(logp))).astype(np.float32),
            mask_T=rng.random(len(logp)) < 0.9,
        )
        for sample, logp in zip(samples, current_logps(tiny_policy(dtype=dtype), samples), strict=True)
    ]


def sgd_step(samples: list[TrainSample], dtype: torch.dtype, **changes: object) -> tuple[float, torch.Tensor]:
    """Loss and gradient; the gradient is one SGD step's change of the weights."""
    result, gradient = run_step(tiny_policy(dtype=dtype), samples, proximal="behaviour", **changes)
    return result.tally.metrics()["loss"], gradient


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_packed_and_sample_by_sample_agree_for_every_objective(name: str, dtype: torch.dtype, limit: float) -> None:
    samples = off_policy(dtype)
    loss, gradient = sgd_step(samples, dtype, objective=name, micro_batch_tokens=1)
    for budget in (40, 100, 100_000):
        other_loss, other = sgd_step(samples, dtype, objective=name, micro_batch_tokens=budget)
        assert other_loss == pytest.approx(loss, abs=limit)
        assert (other - gradient).abs().max() <= limit


@pytest.mark.parametrize("correction", ["tis", "icepop", "geometric", "none"])
def test_packed_and_sample_by_sample_agree_for_every_correction(correction: str) -> None:
    samples = off_policy(torch.float64)
    results = [
        run_step(tiny_policy(dtype=torch.float64), samples, correction=correction, micro_batch_tokens=budget)[1]
        for budget in (1, 100_000)
    ]
    assert (results[0] - results[1]).abs().max() <= 1e-10


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_order_of_the_samples_does_not_matter(name: str) -> None:
    samples = off_policy(torch.float64)
    order = np.random.default_rng(0).permutation(len(samples))
    _, gradient = sgd_step(samples, torch.float64, objective=name)
    _, other = sgd_step([samples[place] for place in order], torch.float64, objective=name)
    assert (other - gradient).abs().max() <= 1e-10


def test_a_normaliser_made_per_micro_batch_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # the defect of the field (D16), put in on purpose: each micro-batch divides by its own tokens
    honest = step_module.pack

    def defective(samples, places, device, weights=None):  # type: ignore[no-untyped-def]
        own = token_weights(samples, places, "tokens", max_tokens=64)
        return honest(samples, places, device, own)

    samples = off_policy(torch.float32)
    _, expected = sgd_step(samples, torch.float32, micro_batch_tokens=1)
    monkeypatch.setattr(step_module, "pack", defective)
    _, gradient = sgd_step(samples, torch.float32, micro_batch_tokens=100)
    assert (gradient - expected).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # three samples with 1, 3 and 0 trained tokens, longest response allowed 10
        ("tokens", [1 / 4, 1 / 4, 1 / 4]),
        ("samples", [1 / 2, 1 / 6, 1 / 2]),
        ("constant", [1 / 20, 1 / 20, 1 / 20]),
    ],
)
def test_normalisers_by_hand(kind: str, expected: list[float]) -> None:
    samples = make_samples([1, 3, 2])
    samples[2] = dataclasses.replace(samples[2], mask_T=np.zeros(2, dtype=bool))
    assert token_weights(samples, range(3), kind, max_tokens=10) == pytest.approx(expected)  # type: ignore[arg-type]


def test_grpo_weighs_every_sample_the_same_and_dapo_every_token() -> None:
    # r = w = 1, so a token's loss is -A: A = -1 for one token, A = -3 for three
    short, long = make_samples([1, 3], group_size=2)
    samples = [dataclasses.replace(short, advantage=-1.0), dataclasses.replace(long, advantage=-3.0)]

    def loss(objective: str) -> float:
        result, _ = run_step(tiny_policy(), samples, objective=objective, correction="none")
        return result.tally.metrics()["loss"]

    assert loss("dapo") == pytest.approx((1 + 3 * 3) / 4)
    assert loss("grpo") == pytest.approx((1 + 3) / 2)
    assert loss("dr_grpo") == pytest.approx((1 + 3 * 3) / (2 * 64))


def test_samples_without_a_trained_token_cost_no_pass() -> None:
    samples = make_samples([5, 9, 7])
    samples[1] = dataclasses.replace(samples[1], mask_T=np.zeros(9, dtype=bool))
    policy = tiny_policy()
    seen: list[int] = []
    policy.scorer.register_forward_pre_hook(lambda _, args: seen.append(len(args[0].input_ids_L)))
    run_step(policy, samples)
    assert seen == [samples[0].length + samples[2].length]
