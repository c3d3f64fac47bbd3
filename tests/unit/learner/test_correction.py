import torch

from services.learner.correction import weights
from services.learner.objectives.ratio import log_ratio


def test_tis_caps_the_weight_and_leaves_small_ones() -> None:
    rho = torch.tensor([0.5, 1.0, 3.0])
    assert weights(rho, torch.zeros(3, dtype=torch.long), torch.ones(3), kind="tis", cap=2.0).tolist() == [
        0.5,
        1.0,
        2.0,
    ]


def test_icepop_drops_tokens_outside_its_range() -> None:
    rho = torch.tensor([0.4, 0.5, 5.0, 5.1])
    assert weights(rho, torch.zeros(4, dtype=torch.long), torch.ones(4), kind="icepop", cap=2.0).tolist() == [
        0.0,
        0.5,
        5.0,
        0.0,
    ]


def test_geometric_masks_whole_samples_by_their_mean_ratio() -> None:
    # sample 0: sqrt(2 * 0.5) = 1, kept; sample 1: sqrt(1.5 * 1) = 1.22, dropped
    rho = torch.tensor([2.0, 0.5, 1.5, 1.0], dtype=torch.float64)
    w = weights(rho, torch.tensor([0, 0, 1, 1]), torch.ones(4), kind="geometric", cap=2.0)
    assert w.tolist() == [2.0, 0.5, 0.0, 0.0]


def test_no_correction_weighs_every_token_one() -> None:
    assert weights(
        torch.tensor([9.0]), torch.zeros(1, dtype=torch.long), torch.ones(1), kind="none", cap=2.0
    ).tolist() == [1.0]


def test_no_gradient_flows_through_the_weight() -> None:
    logp = torch.tensor([-1.0], requires_grad=True)
    rho = log_ratio(logp, torch.tensor([-2.0])).exp()
    assert not weights(rho, torch.zeros(1, dtype=torch.long), torch.ones(1), kind="tis", cap=2.0).requires_grad


def test_masked_tokens_do_not_enter_the_geometric_mean() -> None:
    rho, mask = torch.tensor([1.0, 9.0]), torch.tensor([1.0, 0.0])
    assert weights(rho, torch.zeros(2, dtype=torch.long), mask, kind="geometric", cap=2.0).tolist() == [1.0, 2.0]
