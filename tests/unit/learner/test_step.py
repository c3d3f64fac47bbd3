import dataclasses
import math

import numpy as np
import pytest
import torch

from services.learner.config import LearnerConfig
from services.learner.optimizer import Optimizer, TooManySkipsError
from services.learner.packing import pack
from services.learner.proximal import resolve
from services.learner.step import Trainer, mini_batches
from tests.unit.learner.models import current_logps, gradients, make_samples, parameters, run_step, tiny_policy

LENGTHS = [1, 17, 3, 29, 8, 8, 2, 23, 5, 11, 30, 1, 14, 6, 9, 20]
"""Sixteen unlike lengths: four groups of four."""


@pytest.mark.parametrize("budget", [1, 2 * 36, 4 * 36, 16 * 36, 100_000])
def test_loss_and_gradient_do_not_depend_on_the_micro_batches(budget: int) -> None:
    samples = make_samples(LENGTHS)
    single, expected = run_step(tiny_policy(), samples, micro_batch_tokens=1)
    result, gradient = run_step(tiny_policy(), samples, micro_batch_tokens=budget)
    assert result.tally.metrics()["loss"] == pytest.approx(single.tally.metrics()["loss"], abs=1e-6)
    assert torch.allclose(gradient, expected, atol=1e-6, rtol=0)


def test_gradients_agree_to_1e_10_in_float64() -> None:
    samples = make_samples(LENGTHS)
    _, expected = run_step(tiny_policy(dtype=torch.float64), samples, micro_batch_tokens=1)
    _, gradient = run_step(tiny_policy(dtype=torch.float64), samples, micro_batch_tokens=200)
    assert torch.allclose(gradient, expected, atol=1e-10, rtol=0)


def test_the_normaliser_is_the_token_count_of_the_step_not_a_mean_of_means() -> None:
    # Token losses 1 and 3, 3, 3 as in the reference: with r = 1 and w = 1 the loss of a token is -A, so A = -1 for the
    # short sample and -3 for the long one give (1 + 3 + 3 + 3) / 4 = 2.5; a mean of sample means gives 2.
    short, long = make_samples([1, 3], group_size=2)
    samples = [dataclasses.replace(short, advantage=-1.0), dataclasses.replace(long, advantage=-3.0)]
    for budget in (1, 1000):
        result, _ = run_step(tiny_policy(), samples, correction="none", micro_batch_tokens=budget)
        assert result.tally.metrics()["loss"] == pytest.approx(2.5)


def test_weights_after_a_step_do_not_depend_on_the_order_of_the_samples() -> None:
    policies = tiny_policy(dtype=torch.float64), tiny_policy(dtype=torch.float64)
    samples = make_samples(LENGTHS)
    run_step(policies[0], samples)
    run_step(policies[1], samples[::-1])
    assert torch.allclose(parameters(policies[0]), parameters(policies[1]), atol=1e-10)


def test_on_policy_ratios_and_weights_are_one() -> None:
    policy = tiny_policy()
    samples = make_samples(LENGTHS)
    logps = current_logps(policy, samples)
    samples = [dataclasses.replace(s, mu_logp_T=logp) for s, logp in zip(samples, logps, strict=True)]
    metrics = run_step(policy, samples)[0].tally.metrics()
    assert metrics["rho_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["ess"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["mismatch_kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["engine_difference"] == pytest.approx(0.0, abs=1e-5)


def test_masked_tokens_change_nothing_and_do_not_count() -> None:
    samples = make_samples([5, 7], group_size=2)
    cut = dataclasses.replace(samples[1], mask_T=np.arange(7) < 4)
    short = dataclasses.replace(
        samples[1], response_T=samples[1].response_T[:4], mu_logp_T=samples[1].mu_logp_T[:4],
        version_T=samples[1].version_T[:4], mask_T=np.ones(4, dtype=bool),
    )  # fmt: skip
    masked, gradient = run_step(tiny_policy(), [samples[0], cut])
    shortened, expected = run_step(tiny_policy(), [samples[0], short])
    assert masked.tally.metrics()["trained_tokens"] == 9
    assert torch.allclose(gradient, expected, atol=1e-6)
    assert masked.tally.metrics()["loss"] == pytest.approx(shortened.tally.metrics()["loss"])


def test_a_sample_with_nan_does_not_touch_the_weights() -> None:
    policy = tiny_policy()
    samples = make_samples([5, 7], group_size=2)
    samples[0] = dataclasses.replace(samples[0], advantage=math.nan)
    before = parameters(policy)
    result, _ = run_step(policy, samples)
    assert result.updates[0].skipped
    assert torch.equal(parameters(policy), before)


def test_too_many_skips_in_a_row_stop_the_run() -> None:
    policy = tiny_policy()
    config = LearnerConfig(max_skips=2)
    trainer = Trainer(policy, Optimizer(policy.named_parameters(), config), config, max_tokens=64)
    samples = [dataclasses.replace(make_samples([4])[0], advantage=math.nan)]
    trainer.step(samples, step=0, num_groups=1)
    with pytest.raises(TooManySkipsError, match="2 optimizer steps in a row"):
        trainer.step(samples, step=1, num_groups=1)


def test_several_updates_use_disjoint_mini_batches_of_whole_groups() -> None:
    samples = make_samples(LENGTHS)
    parts = mini_batches(samples, num_groups=4, count=2)
    assert [{samples[place].group for place in part} for part in parts] == [{0, 1}, {2, 3}]
    assert sorted(place for part in parts for place in part) == list(range(16))


def test_several_updates_recompute_the_proximal_policy_and_one_does_not() -> None:
    assert resolve("auto", 1) == "current"
    assert resolve("auto", 4) == "recompute"


def test_the_second_update_of_a_batch_sees_ratios_against_the_start_of_the_step() -> None:
    policy = tiny_policy()
    samples = make_samples(LENGTHS)
    result, _ = run_step(policy, samples, updates_per_batch=2, proximal="recompute", lr=1e-2)
    assert len(result.updates) == 2
    # one update later the policy has moved, so the loss is not that of ratio 1: -sum(A w) / N
    current, _ = run_step(tiny_policy(), samples, updates_per_batch=1, proximal="recompute", lr=1e-2)
    assert result.tally.metrics()["loss"] != pytest.approx(current.tally.metrics()["loss"], abs=1e-6)


def test_the_two_policy_mode_takes_the_engine_as_the_old_policy() -> None:
    policy = tiny_policy()
    samples = make_samples([6, 6], group_size=2)
    logps = current_logps(policy, samples)
    # log pi - log mu = log 1.5 on every token: with A = 1 the ratio 1.5 is clipped at 1.28
    shifted = [
        dataclasses.replace(s, mu_logp_T=(logp - math.log(1.5)).astype(np.float32), advantage=1.0)
        for s, logp in zip(samples, logps, strict=True)
    ]
    metrics = run_step(policy, shifted, proximal="behaviour")[0].tally.metrics()
    assert metrics["loss"] == pytest.approx(-1.28, abs=1e-4)
    assert metrics["clip_high"] == 1.0


def test_the_contract_is_checked_before_the_weights_change() -> None:
    policy = tiny_policy()
    before = parameters(policy)

    def refuse(difference: float, samples: object) -> None:
        raise RuntimeError(f"difference {difference:.3f}")

    config = LearnerConfig()
    trainer = Trainer(policy, Optimizer(policy.named_parameters(), config), config, max_tokens=64)
    with pytest.raises(RuntimeError, match="difference"):
        trainer.step(make_samples([5]), step=0, num_groups=1, check_contract=refuse)
    assert torch.equal(parameters(policy), before)


def test_feedback_is_the_squared_gradient_in_logit_space() -> None:
    policy = tiny_policy()
    sample = dataclasses.replace(make_samples([1])[0], advantage=2.0)
    result, _ = run_step(policy, [sample], correction="none")
    batch = pack([sample], [0], policy.device)
    fresh = tiny_policy()
    hidden = fresh.model.base_model(
        input_ids=batch.input_ids_L[None], position_ids=batch.position_L[None], segments=batch.segments
    ).last_hidden_state[0, batch.source_N]
    logits = (hidden @ fresh.model.get_output_embeddings().weight.T).detach().requires_grad_()
    (-2.0 * logits.log_softmax(-1)[0, batch.target_N[0]]).backward()
    assert logits.grad is not None
    assert result.tally.per_group()[0][0] == pytest.approx(logits.grad.square().sum().item(), rel=1e-4)


def test_gradients_are_forgotten_between_steps() -> None:
    policy = tiny_policy()
    _, first = run_step(policy, make_samples([4, 4], group_size=2), lr=1e-12)
    _, second = run_step(policy, make_samples([4, 4], group_size=2), lr=1e-12)
    assert torch.allclose(first, second, atol=1e-5)
    assert gradients(policy).isfinite().all()


def test_the_normaliser_covers_the_optimizer_step_not_the_whole_batch() -> None:
    # four mini-batches of one group each: the gradient of the last is that of its group alone, not a quarter of it
    samples = make_samples(LENGTHS)
    last = [dataclasses.replace(sample, group=0) for sample in samples if sample.group == 3]
    _, expected = run_step(tiny_policy(), last, proximal="behaviour")
    _, gradient = run_step(tiny_policy(), samples, proximal="behaviour", updates_per_batch=4, lr=1e-12)
    assert torch.allclose(gradient, expected, atol=1e-6)
