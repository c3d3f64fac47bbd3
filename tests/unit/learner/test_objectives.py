import math

import pytest
import torch

from services.learner.objectives import OBJECTIVES, Clip, TokenLoss, Tokens
from services.learner.objectives.dapo import clipped_loss

CLIP = Clip(0.2, 0.28, 10.0)


def tokens(logp: torch.Tensor, prox: torch.Tensor, advantages: list[float], lengths: list[int] | None = None) -> Tokens:
    """Tokens of samples of the given lengths, all trained; one sample if no lengths are given."""
    sample = torch.repeat_interleave(torch.arange(len(lengths or [1])), torch.tensor(lengths or [len(logp)]))
    advantage = torch.tensor(advantages, dtype=logp.dtype)
    return Tokens(logp, prox, advantage, sample, torch.ones_like(logp).detach())


def of_ratios(ratios: list[float], advantages: list[float]) -> tuple[torch.Tensor, TokenLoss]:
    """Loss of tokens with the given ratios, and the log-probabilities that carry the gradient."""
    logp = torch.tensor([math.log(r) for r in ratios], dtype=torch.float64, requires_grad=True)
    return logp, clipped_loss(tokens(logp, torch.zeros_like(logp), advantages), CLIP)


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
    assert loss.slope_N.tolist() == pytest.approx(logp.grad.tolist())


def test_dual_clip_bounds_the_loss_of_a_bad_token_at_c() -> None:
    _, loss = of_ratios([50.0, 50.0], [-2.0, 2.0])
    assert loss.loss_N.tolist() == pytest.approx([20.0, -2.56])  # -A c = 20; -A (1 + eps_high) = -2.56
    assert loss.clipped_dual_N.tolist() == [True, False]


def test_dual_clip_zero_switches_it_off() -> None:
    logp = torch.tensor([math.log(50.0)])
    loss = clipped_loss(tokens(logp, torch.zeros(1), [-1.0]), Clip(0.2, 0.28, 0.0))
    assert loss.loss_N.item() == pytest.approx(50.0, rel=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "advantage", "expected", "zero_gradient"),
    [(-700.0, -0.1, 1.0, -1.28, True), (-700.0, -0.1, 0.0, 0.0, True), (-0.1, -700.0, -1.0, 0.8, True)],
)
def test_extreme_ratios_give_the_reference_loss_and_no_gradient(
    old: float, new: float, advantage: float, expected: float, zero_gradient: bool
) -> None:
    logp = torch.tensor([new], requires_grad=True)
    loss = clipped_loss(tokens(logp, torch.tensor([old]), [advantage]), CLIP)
    loss.loss_N.sum().backward()
    assert loss.loss_N.item() == pytest.approx(expected)
    assert logp.grad is not None
    assert (logp.grad.item() == 0.0) == zero_gradient


@pytest.mark.parametrize("old", [-700.0, -math.inf])
def test_a_bad_token_with_an_extreme_ratio_stays_finite_and_is_counted(old: float) -> None:
    logp = torch.tensor([-0.1], requires_grad=True)
    loss = clipped_loss(tokens(logp, torch.tensor([old]), [-1.0]), CLIP)
    loss.loss_N.sum().backward()
    assert loss.loss_N.isfinite().all()
    assert logp.grad is not None
    assert logp.grad.isfinite().all()
    assert loss.extreme_N.tolist() == [True]


PROBABILITIES = {"theta": [0.9, 0.2, 0.5, 0.05], "prox": [0.5, 0.5, 0.5, 0.01]}
"""Ratios 1.8, 0.4, 1, 5."""


def of_probabilities(
    name: str, advantages: list[float], lengths: list[int] | None = None
) -> tuple[torch.Tensor, TokenLoss]:
    """The objective's loss, with its own clips, of tokens with known probabilities."""
    objective = OBJECTIVES[name]
    logp = torch.tensor(PROBABILITIES["theta"], dtype=torch.float64).log().requires_grad_()
    prox = torch.tensor(PROBABILITIES["prox"], dtype=torch.float64).log()
    return logp, objective.loss(tokens(logp, prox, advantages, lengths), objective.clip)


def test_grpo_clips_symmetrically_and_has_no_dual_clip() -> None:
    # A=1: -min(1.8, 1.2); A=1: -min(0.4, 0.8); A=-1: max(1, 1); A=-1: max(5, 1.2)
    _, loss = of_probabilities("grpo", [1.0, 1.0, -1.0, -1.0])
    assert loss.loss_N.tolist() == pytest.approx([-1.2, -0.4, 1.0, 5.0])


def test_gspo_gives_every_token_the_geometric_mean_ratio_of_its_sample() -> None:
    # sample 0: sqrt(1.8 * 0.4) = 0.8485, A = -1: max(0.8485, 1 - 3e-4), gradient cut
    # sample 1: sqrt(1 * 5) = 2.2361, A = -1: nothing to clip, gradient -A s per token
    logp, loss = of_probabilities("gspo", [-1.0] * 4, [2, 2])
    assert loss.loss_N.tolist() == pytest.approx([0.9997, 0.9997, 5**0.5, 5**0.5])
    loss.loss_N.sum().backward()
    assert logp.grad.tolist() == pytest.approx([0.0, 0.0, 5**0.5, 5**0.5])  # type: ignore[union-attr]
    assert loss.clipped_low_N.tolist() == [True, True, False, False]


def test_gspo_has_the_gradient_of_the_sequence_objective() -> None:
    # -A s with s = exp(mean_t log r): d/d logp_t = -A s / T. Weighed 1/T per token by the normaliser, both agree.
    logp, loss = of_probabilities("gspo", [-1.0] * 4)
    (loss.loss_N / 4).sum().backward()
    other = logp.detach().clone().requires_grad_()
    prox = torch.tensor(PROBABILITIES["prox"], dtype=torch.float64).log()
    (other - prox).mean().exp().backward()
    assert torch.allclose(logp.grad, other.grad)  # type: ignore[arg-type]


def test_cispo_weighs_the_policy_gradient_by_the_capped_ratio_and_cuts_nothing() -> None:
    # weights min(r, 5): 1.8, 0.4, 1, 5; with the cap at 1 + 0.5: 1.5, 0.4, 1, 1.5
    logp, loss = of_probabilities("cispo", [1.0, 1.0, -1.0, 2.0])
    expected = [-1.8 * math.log(0.9), -0.4 * math.log(0.2), math.log(0.5), -10 * math.log(0.05)]
    assert loss.loss_N.tolist() == pytest.approx(expected)
    logp = logp.detach().requires_grad_()
    prox = torch.tensor(PROBABILITIES["prox"], dtype=torch.float64).log()
    capped = OBJECTIVES["cispo"].loss(tokens(logp, prox, [1.0, 1.0, -1.0, 2.0]), Clip(0.0, 0.5))
    capped.loss_N.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-1.5, -0.4, 1.0, -3.0])  # type: ignore[union-attr]
    assert capped.clipped_high_N.tolist() == [True, False, False, True]


def test_dppo_masks_by_the_change_of_probability_not_by_the_ratio() -> None:
    # changes +0.4, -0.3, 0, +0.04. A > 0 and +0.4 > 0.28: masked; A < 0 and -0.3 < -0.2: masked;
    # ratio 5 of a rare token is a change of 0.04 only: kept, where DAPO's clip would cut it
    logp, loss = of_probabilities("dppo_tv", [1.0, -1.0, 1.0, 1.0])
    assert loss.loss_N.tolist() == pytest.approx([0.0, 0.0, -1.0, -5.0])
    loss.loss_N.sum().backward()
    assert logp.grad.tolist() == pytest.approx([0.0, 0.0, -1.0, -5.0])  # type: ignore[union-attr]
    _, against = of_probabilities("dppo_tv", [-1.0, 1.0, 1.0, 1.0])  # moves against the advantage are never masked
    assert against.loss_N.tolist() == pytest.approx([1.8, -0.4, -1.0, -5.0])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_reported_slope_is_the_gradient(name: str) -> None:
    logp, loss = of_probabilities(name, [1.0, -1.0, 1.0, -2.0], [2, 2])
    loss.loss_N.sum().backward()
    assert loss.slope_N.tolist() == pytest.approx(logp.grad.tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in ("gspo", "cispo")])
def test_the_gradient_is_the_numerical_derivative(name: str) -> None:
    objective = OBJECTIVES[name]
    prox = torch.tensor([-1.0, -1.2, -0.7, -2.0], dtype=torch.float64)
    logp = (prox + torch.tensor([0.05, -0.1, 0.1, -0.05])).detach().requires_grad_()

    def value(logp: torch.Tensor) -> torch.Tensor:
        return objective.loss(tokens(logp, prox, [1.0, -1.0, 0.5, -2.0], [2, 2]), objective.clip).loss_N.sum()

    assert torch.autograd.gradcheck(value, (logp,))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_on_policy_every_objective_has_the_plain_policy_gradient(name: str) -> None:
    objective = OBJECTIVES[name]
    logp = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    objective.loss(tokens(logp, logp.detach(), [1.0, -1.0, 0.5]), objective.clip).loss_N.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-1.0, 1.0, -0.5])  # type: ignore[union-attr]


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("prox", [-60.1, -math.inf])
def test_every_objective_stays_finite_at_extreme_ratios(name: str, prox: float) -> None:
    objective = OBJECTIVES[name]
    logp = torch.tensor([-0.1, -60.1], requires_grad=True)
    loss = objective.loss(tokens(logp, torch.tensor([prox, -0.1]), [-1.0, 1.0]), objective.clip)
    loss.loss_N.sum().backward()
    assert loss.loss_N.isfinite().all()
    assert logp.grad.isfinite().all()  # type: ignore[union-attr]
    assert loss.extreme_N.tolist() == [True, True]
