import pytest
import torch

from common import config
from common.config import Tree
from common.errors import UserError
from services.cli import inputs
from services.learner.config import LearnerConfig
from services.rollout.compress import Compression, compressed, on_grid, pruned
from services.rollout.config import CompressConfig, RolloutConfig

NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_the_smallest_share_of_a_matrix_becomes_zero_and_the_rest_stays(share: float) -> None:
    matrix = torch.randn(40, 50)
    found = pruned(matrix, share)
    zero = found == 0
    assert int(zero.sum()) == int(share * 2000)
    assert torch.equal(found[~zero], matrix[~zero])
    assert matrix[zero].abs().max() <= matrix[~zero].abs().min()


def test_ties_do_not_prune_more_than_the_share() -> None:
    assert int((pruned(torch.ones(10, 10), 0.2) == 0).sum()) == 20


def test_int8_rounds_each_row_to_255_steps_of_its_largest_value() -> None:
    matrix = torch.randn(16, 64) * torch.logspace(-3, 2, 16)[:, None]
    found = on_grid(matrix, "int8")
    step = matrix.abs().amax(1, keepdim=True) / 127
    assert ((found - matrix).abs() <= step / 2 * 1.0001).all()
    assert all(len(row.unique()) <= 255 for row in found)
    assert torch.allclose(on_grid(found, "int8"), found, rtol=1e-6)


def test_fp8_keeps_three_bits_of_mantissa() -> None:
    matrix = torch.randn(16, 64)
    found = on_grid(matrix, "fp8")
    large = matrix.abs() > matrix.abs().amax(1, keepdim=True) / 100
    assert ((found - matrix).abs()[large] / matrix.abs()[large]).max() <= 1 / 16 + 1e-6


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.embed_tokens.weight", (8, 8)), ("lm_head.weight", (8, 8)), ("model.norm.weight", (8,)),
        ("model.layers.0.mlp.up_proj.bias", (8,)), ("model.layers.0.mlp.gate.weight", (8, 8)),
    ],
)  # fmt: skip
def test_embeddings_head_norms_biases_and_routers_stay_as_they_are(name: str, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    assert compressed(name, tensor, Compression(prune=0.2, quantize="int8")) is tensor


def test_without_compression_a_tensor_is_handed_on_itself() -> None:
    tensor = torch.randn(4, 4)
    assert compressed(NAME, tensor, Compression()) is tensor
    assert compressed(NAME, tensor.bfloat16(), Compression(quantize="int8")).dtype == torch.bfloat16


def read(**compress: object) -> RolloutConfig:
    tree = Tree(path="run.toml", tables={"rollout": {"compress": compress}})  # type: ignore[arg-type]
    return config.section(tree, "rollout", RolloutConfig)


def test_more_than_a_fifth_is_refused_without_force() -> None:
    assert read(prune=0.2).compress.is_on
    assert read(prune=0.5, force=True).compress.prune == 0.5
    with pytest.raises(UserError, match=r"`compress\.prune` above 0\.2 spoils most models: add force = true"):
        read(prune=0.5)
    with pytest.raises(UserError, match="below 1"):
        read(prune=1.0, force=True)


def test_who_compresses_says_how_far_engine_and_learner_may_differ() -> None:
    compressing = RolloutConfig(compress=CompressConfig(quantize="int8"))
    with pytest.raises(UserError, match=r"set \[learner\] contract_limit"):
        inputs.check_compression(compressing, LearnerConfig())
    inputs.check_compression(compressing, LearnerConfig(contract_limit=0.5))
    inputs.check_compression(RolloutConfig(), LearnerConfig())
