import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


@pytest.mark.parametrize("chunk", [3, 100])
def test_the_entropy_has_the_gradient_of_the_naive_form(chunk: int) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    head = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    target, a, b = torch.randint(11, (8,)), *torch.randn(2, 8, dtype=torch.float64)
    scores = token_scores(hidden, head, target, temperature=0.7, chunk=chunk)
    got = torch.autograd.grad((scores.logp_N * a + scores.entropy_N * b).sum(), (hidden, head))
    logp = (hidden @ head.T / 0.7).log_softmax(-1)
    naive = logp[torch.arange(8), target] * a - (logp.exp() * logp).sum(-1) * b
    for one, other in zip(got, torch.autograd.grad(naive.sum(), (hidden, head)), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_frozen_head_costs_no_gradient() -> None:
    hidden, head = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)
    token_scores(hidden, head, torch.arange(4), temperature=1.0, chunk=2).logp_N.sum().backward()
    assert hidden.grad is not None
    assert head.grad is None


class LargestArray(TorchDispatchMode):
    """Remembers the most elements that any tensor had."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_no_array_of_tokens_by_vocabulary_is_ever_made() -> None:
    hidden, head = torch.randn(64, 4, requires_grad=True), torch.randn(100, 4, requires_grad=True)
    with LargestArray() as seen:
        token_scores(hidden, head, torch.arange(64), temperature=1.0, chunk=8).logp_N.sum().backward()
    assert seen.elements == 8 * 100  # a chunk of logits; all tokens would be 6,400


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_it_compiles_as_one_graph() -> None:
    def loss(hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return token_scores(hidden, head, target, temperature=0.7, chunk=3).logp_N.sum()

    hidden, head, target = torch.randn(7, 4, requires_grad=True), torch.randn(9, 4), torch.arange(7)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    value = compiled(hidden, head, target)
    value.backward()
    expected = torch.autograd.grad(loss(hidden, head, target), hidden)
    assert value.item() == pytest.approx(loss(hidden, head, target).item())
    assert torch.allclose(hidden.grad, *expected, atol=1e-6)  # type: ignore[arg-type]
