import pytest
import torch

from services.learner.logprobs import token_scores


def test_the_temperature_enters_before_the_softmax() -> None:
    # logits (2, 1, 0, -1) / 0.5 = (4, 2, 0, -2); log softmax of the second = 2 - log(e^4 + e^2 + 1 + e^-2)
    hidden, head = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0], [1, 0], [0, 0], [-1, 0]])
    scores = token_scores(hidden, head, torch.tensor([1]), temperature=0.5, chunk=1)
    assert scores.logp_N.item() == pytest.approx(-2.145078, abs=1e-6)


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
def test_chunks_give_the_values_and_gradients_of_the_naive_form(chunk: int) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    head = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    target, upstream = torch.randint(11, (8,)), torch.randn(8, dtype=torch.float64)
    scores = token_scores(hidden, head, target, temperature=0.7, chunk=chunk)
    got = torch.autograd.grad((scores.logp_N * upstream).sum(), (hidden, head))
    logp = (hidden @ head.T / 0.7).log_softmax(-1)
    naive = logp[torch.arange(8), target]
    expected = torch.autograd.grad((naive * upstream).sum(), (hidden, head))
    assert torch.allclose(scores.logp_N, naive, atol=1e-12)
    assert torch.allclose(scores.entropy_N, -(logp.exp() * logp).sum(-1), atol=1e-12)
    assert torch.allclose(scores.square_N, logp.exp().square().sum(-1), atol=1e-12)
    for a, b in zip(got, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_a_half_precision_model_is_scored_in_float32() -> None:
    hidden, head = torch.randn(4, 8).bfloat16(), torch.randn(6, 8).bfloat16()
    scores = token_scores(hidden, head, torch.tensor([0, 1, 2, 3]), temperature=1.0, chunk=2)
    assert scores.logp_N.dtype == torch.float32


def test_entropy_and_squares_carry_no_gradient() -> None:
    scores = token_scores(
        torch.randn(2, 3, requires_grad=True), torch.randn(5, 3), torch.tensor([0, 1]), temperature=1.0, chunk=4
    )
    assert scores.logp_N.requires_grad
    assert not scores.entropy_N.requires_grad
    assert not scores.square_N.requires_grad
