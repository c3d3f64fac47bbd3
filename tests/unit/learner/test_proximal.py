import dataclasses
import math

import numpy as np
import pytest
import torch

from services.learner.proximal import proximal_logps, share_of_the_way
from tests.unit.learner.models import current_logps, make_samples, run_step, tiny_policy

LOGP, MU, RECOMPUTED = torch.tensor([-1.0]), torch.tensor([-3.0]), torch.tensor([-1.5])


@pytest.mark.parametrize(
    ("kind", "share", "expected"),
    [
        ("current", 1.0, -1.0), ("recompute", 1.0, -1.5), ("behaviour", 1.0, -3.0),
        ("loglinear", 1.0, -1.0), ("loglinear", 0.0, -3.0), ("loglinear", 0.75, -1.5),
    ],
)  # fmt: skip
def test_each_mode_starts_from_its_policy(kind: str, share: float, expected: float) -> None:
    prox = proximal_logps(kind, LOGP.clone().requires_grad_(), MU, RECOMPUTED, torch.tensor([share]))  # type: ignore[arg-type]
    assert prox.item() == pytest.approx(expected)
    assert not prox.requires_grad


def test_the_share_of_the_way_is_from_the_tokens_version_to_now() -> None:
    # step 5, half of its optimizer steps done. Version 5: started at the proximal policy itself, a = 0.
    # Version 4: one step behind, 1 / 1.5; version 2: 3 / 3.5
    share = share_of_the_way(torch.tensor([5, 4, 2]), step=5, progress=0.5)
    assert share.tolist() == pytest.approx([0.0, 1 / 1.5, 3 / 3.5])


def test_at_the_start_of_a_step_theta_is_the_proximal_policy() -> None:
    assert share_of_the_way(torch.tensor([5, 4]), step=5, progress=0.0).tolist() == [1.0, 1.0]


def test_the_log_linear_mode_stays_finite_without_a_behaviour_probability() -> None:
    for share in (0.0, 0.5, 1.0):
        prox = proximal_logps("loglinear", LOGP, torch.tensor([-math.inf]), None, torch.tensor([share]))
        assert not prox.isposinf().any()


def test_log_linear_equals_current_for_one_optimizer_step_and_recompute_costs_the_same_loss() -> None:
    samples = make_samples([4, 9, 6, 2])
    losses = [
        run_step(tiny_policy(), samples, proximal=mode)[0].tally.metrics()["loss"]
        for mode in ("current", "loglinear", "recompute")
    ]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-6)


def test_fresh_tokens_anchor_the_log_linear_mode_at_the_engine_as_the_recomputed_one_does() -> None:
    # the engine agrees with the policy at the start of the step, so mu is the proximal policy of fresh tokens
    samples = make_samples([4, 9, 6, 2, 7, 5, 3, 8])
    logps = current_logps(tiny_policy(), samples)
    samples = [dataclasses.replace(s, mu_logp_T=np.asarray(p)) for s, p in zip(samples, logps, strict=True)]
    one, two = (
        run_step(tiny_policy(), samples, proximal=mode, updates_per_batch=2, lr=1e-2)[1]
        for mode in ("loglinear", "recompute")
    )
    assert torch.allclose(one, two, atol=1e-5)
