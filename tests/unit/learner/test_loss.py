import math

import pytest
import torch

from services.learner.correction import clamped_ratio, weights
from services.learner.loss import TokenLoss, dapo_loss

CLIPS = {"eps_low": 0.2, "eps_high": 0.28, "dual_clip": 10.0}


def of_ratios(ratios: list[float], advantages: list[float]) -> tuple[torch.Tensor, TokenLoss]:
    """Loss of tokens with the given ratios, and the log-probabilities that carry the gradient."""
    logp = torch.tensor([math.log(r) for r in ratios], dtype=torch.float64, requires_grad=True)
    loss = dapo_loss(logp, torch.zeros_like(logp), torch.tensor(advantages, dtype=torch.float64), **CLIPS)
    return logp, loss


def test_clip_higher_gives_the_five_reference_losses() -> None:
    # A=1: -min(1.5, 1.28), A=-1: max(1.5, 1.28), A=-1: max(0.5, 0.8), A=1: -min(0.5, 0.8), A=1: -min(1.25, 1.25)
    _, loss = of_ratios([1.5, 1.5, 0.5, 0.5, 1.25], [1.0, -1.0, -1.0, 1.0, 1.0])
    assert loss.loss_N.tolist() == pytest.approx([-1.28, 1.5, 0.8, -0.5, -1.25])
    assert loss.loss_N.mean().item() == pytest.approx(-0.146)


def test_a_clip_counts_only_where_it_changes_the_gradient() -> None:
    _, loss = of_ratios([1.5, 1.5, 0.5, 0.5, 1.25], [1.0, -1.0, -1.0, 1.0, 1.0])
    assert loss.clipped_high_N.tolist() == [True, False, False, False, False]
    assert loss.clipped_low_N.tolist() == [False, False, True, False, False]


def test_the_gradient_vanishes_exactly_where_a_clip_is_counted() -> None:
    logp, loss = of_ratios([1.5, 1.5, 0.5, 0.5, 1.25, 12.0], [1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    loss.loss_N.sum().backward()
    cut = loss.clipped_low_N | loss.clipped_high_N | loss.clipped_dual_N
    assert logp.grad is not None
    assert ((logp.grad == 0) == cut).all()
    # d(-A r)/d log pi = -A r where nothing is clipped
    assert logp.grad[1].item() == pytest.approx(1.5)
    assert loss.coefficient_N.tolist() == pytest.approx([0.0, 1.5, 0.0, 0.5, 1.25, 0.0])


def test_dual_clip_bounds_the_loss_of_a_bad_token_at_c() -> None:
    _, loss = of_ratios([50.0, 50.0], [-2.0, 2.0])
    assert loss.loss_N.tolist() == pytest.approx([20.0, -2.56])  # -A c = 20; -A (1 + eps_high) = -2.56
    assert loss.clipped_dual_N.tolist() == [True, False]


def test_dual_clip_zero_switches_it_off() -> None:
    logp = torch.tensor([math.log(50.0)])
    loss = dapo_loss(logp, torch.zeros(1), torch.tensor([-1.0]), eps_low=0.2, eps_high=0.28, dual_clip=0.0)
    assert loss.loss_N.item() == pytest.approx(50.0, rel=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "advantage", "expected", "zero_gradient"),
    [(-700.0, -0.1, 1.0, -1.28, True), (-700.0, -0.1, 0.0, 0.0, True), (-0.1, -700.0, -1.0, 0.8, True)],
)
def test_extreme_ratios_give_the_reference_loss_and_no_gradient(
    old: float, new: float, advantage: float, expected: float, zero_gradient: bool
) -> None:
    logp = torch.tensor([new], requires_grad=True)
    loss = dapo_loss(logp, torch.tensor([old]), torch.tensor([advantage]), **CLIPS)
    loss.loss_N.sum().backward()
    assert loss.loss_N.item() == pytest.approx(expected)
    assert logp.grad is not None
    assert (logp.grad.item() == 0.0) == zero_gradient


@pytest.mark.parametrize("old", [-700.0, -math.inf])
def test_a_bad_token_with_an_extreme_ratio_stays_finite_and_is_counted(old: float) -> None:
    logp = torch.tensor([-0.1], requires_grad=True)
    loss = dapo_loss(logp, torch.tensor([old]), torch.tensor([-1.0]), **CLIPS)
    loss.loss_N.sum().backward()
    assert loss.loss_N.isfinite().all()
    assert logp.grad is not None
    assert logp.grad.isfinite().all()
    assert loss.extreme_N.tolist() == [True]


def test_tis_caps_the_weight_and_leaves_small_ones() -> None:
    rho = torch.tensor([0.5, 1.0, 3.0])
    assert weights(rho, torch.zeros(3, dtype=torch.long), kind="tis", cap=2.0).tolist() == [0.5, 1.0, 2.0]


def test_icepop_drops_tokens_outside_its_range() -> None:
    rho = torch.tensor([0.4, 0.5, 5.0, 5.1])
    assert weights(rho, torch.zeros(4, dtype=torch.long), kind="icepop", cap=2.0).tolist() == [0.0, 0.5, 5.0, 0.0]


def test_geometric_masks_whole_samples_by_their_mean_ratio() -> None:
    # sample 0: sqrt(2 * 0.5) = 1, kept; sample 1: sqrt(1.5 * 1) = 1.22, dropped
    rho = torch.tensor([2.0, 0.5, 1.5, 1.0], dtype=torch.float64)
    w = weights(rho, torch.tensor([0, 0, 1, 1]), kind="geometric", cap=2.0)
    assert w.tolist() == [2.0, 0.5, 0.0, 0.0]


def test_no_correction_weighs_every_token_one() -> None:
    assert weights(torch.tensor([9.0]), torch.zeros(1, dtype=torch.long), kind="none", cap=2.0).tolist() == [1.0]


def test_no_gradient_flows_through_the_weight() -> None:
    logp = torch.tensor([-1.0], requires_grad=True)
    rho = clamped_ratio(logp, torch.tensor([-2.0]))
    assert not weights(rho, torch.zeros(1, dtype=torch.long), kind="tis", cap=2.0).requires_grad
