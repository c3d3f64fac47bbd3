"""Low-rank adapters by the peft library: W stays, A and B are trained, W + scale B A is published.

The adapters are injected into the model's own layers, so names stay those of Hugging Face but for peft's
`base_layer`. Published versions are merged: the engine needs no support for adapters. Source: arXiv 2106.09685.
"""

from typing import Any

from torch import Tensor

from common.errors import UserError
from services.learner.config import LearnerConfig
from services.learner.sharding import whole

ADAPTER = "default"
BASE = ".base_layer"


def inject(model: Any, config: LearnerConfig) -> None:
    """Freeze the model and put an adapter of rank `lora_rank` beside every linear layer but the head."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError("[learner] lora_rank needs the package peft: pip install peft") from error
    model.requires_grad_(False)
    settings = LoraConfig(
        r=config.lora_rank, lora_alpha=config.lora_alpha, lora_dropout=0.0, target_modules="all-linear", bias="none"
    )
    inject_adapter_in_model(settings, model, adapter_name=ADAPTER)
    model.eval()


def is_adapter(name: str) -> bool:
    """Whether a parameter belongs to an adapter."""
    return ".lora_" in name


def plain_name(name: str) -> str:
    """A parameter's name in the model without adapters."""
    return name.replace(BASE, "")


def delta(model: Any, name: str) -> Tensor | None:
    """scale B A of the layer whose weight this is, or None if it has no adapter; every rank must ask."""
    owner, base, field = name.rpartition(BASE + ".")
    if not base or field != "weight":
        return None
    layer = model.get_submodule(owner)
    up, down = layer.lora_B[ADAPTER].weight.detach(), layer.lora_A[ADAPTER].weight.detach()
    product = whole(up) @ whole(down) * layer.scaling[ADAPTER]
    assert isinstance(product, Tensor)
    return product
