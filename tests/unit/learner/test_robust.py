"""Bad numbers: what is not finite does not reach the weights, and is counted."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from services.learner.objectives import OBJECTIVES
from services.learner.ranks import World
from services.learner.tally import Tally
from tests.unit.learner.models import current_logps, make_samples, parameters, run_step, tiny_policy


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_sample_that_is_not_finite_does_not_touch_the_weights(objective: str, bad: float) -> None:
    policy = tiny_policy()
    samples = make_samples([5, 7, 6, 3])
    samples[1] = dataclasses.replace(samples[1], advantage=bad)
    before = parameters(policy)
    result, _ = run_step(policy, samples, objective=objective)
    assert result.updates[0].skipped
    assert math.isnan(result.updates[0].grad_norm)
    assert torch.equal(parameters(policy), before)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("mode", ["current", "behaviour", "loglinear"])
@pytest.mark.parametrize("shift", [60.0, -60.0, math.inf])
def test_extreme_ratios_stay_finite_and_are_counted(objective: str, mode: str, shift: float) -> None:
    policy = tiny_policy()
    samples = make_samples([5, 7], group_size=2)
    logps = current_logps(policy, samples)
    samples = [
        dataclasses.replace(s, mu_logp_T=(np.asarray(p) - shift).astype(np.float32))
        for s, p in zip(samples, logps, strict=True)
    ]
    result, gradient = run_step(policy, samples, objective=objective, proximal=mode)
    metrics = result.tally.metrics()
    assert gradient.isfinite().all()
    assert not result.updates[0].skipped
    assert all(math.isfinite(value) for value in metrics.values())
    if mode == "behaviour":
        assert metrics["extreme_ratios"] == 12
    else:
        assert metrics["rho_max"] == pytest.approx(math.exp(20.0 if shift > 0 else -20.0), rel=1e-4)


def test_the_99th_percentile_of_rho_is_right_to_two_percent() -> None:
    rng = np.random.default_rng(0)
    log_rho = torch.tensor(rng.normal(size=20_000) * 0.5)
    tally = Tally(1, torch.device("cpu"), step=0)
    bins = ((log_rho + 20) / 40 * 2000).round().long()
    tally._histogram.index_add_(0, bins, torch.ones(20_000, dtype=torch.float64))
    tally.close(World(), num_updates=1)
    assert tally.metrics()["rho_p99"] == pytest.approx(float(np.quantile(log_rho.exp(), 0.99)), rel=0.02)
