"""A tiny random Qwen2, samples for it, and one step on them; shared by the learner's tests."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from services.learner.config import LearnerConfig
from services.learner.model import Policy
from services.learner.optimizer import Optimizer
from services.learner.packing import pack
from services.learner.ranks import World
from services.learner.samples import TrainSample
from services.learner.step import StepResult, Trainer

VOCABULARY = 64


def _all_in_double(model: torch.nn.Module) -> None:
    """transformers makes rotary angles and norms in float32 whatever the model is in: no reference to 1e-10."""
    model.model.rotary_emb = DoubleRotary(model.model.rotary_emb.inv_freq)
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "Qwen2RMSNorm":
            norm = torch.nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon, dtype=torch.float64)
            norm.weight = module.weight
            model.set_submodule(name, norm)


class DoubleRotary(torch.nn.Module):
    """Rotary angles in float64."""

    def __init__(self, inv_freq: torch.Tensor) -> None:
        super().__init__()
        self.inv_freq = inv_freq.double()

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle = (position_ids[..., None].double() * self.inv_freq).repeat(1, 1, 2)
        return angle.cos(), angle.sin()


def tiny_policy(
    *, dtype: torch.dtype = torch.float32, temperature: float = 1.0, chunk: int = 7, seed: int = 0
) -> Policy:
    """Two layers, 64 tokens, tied head."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(dtype).eval()
    if dtype == torch.float64:
        _all_in_double(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # far enough from uniform that errors show
    return Policy(model, temperature=temperature, chunk=chunk)


def make_samples(lengths: Sequence[int], *, seed: int = 0, group_size: int = 4, version: int = 0) -> list[TrainSample]:
    """Samples of the given response lengths with advantages that sum to zero in each group."""
    rng = np.random.default_rng(seed)
    samples = []
    for place, length in enumerate(lengths):
        sign = 1.0 if place % 2 == 0 else -1.0
        samples.append(
            TrainSample(
                group=place // group_size,
                prompt_P=rng.integers(3, VOCABULARY, size=2 + place % 5).astype(np.int32),
                response_T=rng.integers(3, VOCABULARY, size=length).astype(np.int32),
                mu_logp_T=(-4.0 + rng.normal(size=length)).astype(np.float32),
                version_T=np.full(length, version),
                mask_T=np.ones(length, dtype=bool),
                advantage=sign,
            )
        )
    return samples


def with_shared_prompts(samples: Sequence[TrainSample]) -> list[TrainSample]:
    """The same, but all samples of a group answer the prompt of its first."""
    first = {sample.group: sample.prompt_P for sample in reversed(samples)}
    return [dataclasses.replace(sample, prompt_P=first[sample.group]) for sample in samples]


def current_logps(policy: Policy, samples: Sequence[TrainSample]) -> list[np.ndarray]:
    """The policy's own log-probabilities, sample by sample."""
    with torch.no_grad():
        return [policy.scores(pack(samples, [place], policy.device)).logp_N.numpy() for place in range(len(samples))]


def gradients(policy: Policy) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([p.grad.reshape(-1) for p in policy.named_parameters().values() if p.grad is not None])


def parameters(policy: Policy) -> torch.Tensor:
    """All weights as one vector."""
    return torch.cat([p.detach().reshape(-1).clone() for p in policy.named_parameters().values()])


class CapturingOptimizer(Optimizer):
    """An AdamW that keeps the gradients it was given, before clipping."""

    captured: torch.Tensor

    def step(self):  # type: ignore[no-untyped-def]
        self.captured = torch.cat([p.grad.reshape(-1).clone() for p in self.parameters.values()])
        return super().step()


def run_step(
    policy: Policy, samples: Sequence[TrainSample], *, world: World | None = None, reference: Policy | None = None,
    step: int = 0, **changes: object,
) -> tuple[StepResult, torch.Tensor]:  # fmt: skip
    """One learner step; what it did, and the gradients of its last optimizer step."""
    config = dataclasses.replace(LearnerConfig(lr=1e-3, warmup_steps=0), **changes)  # type: ignore[arg-type]
    optimizer = CapturingOptimizer(policy.trained_parameters(), config)
    trainer = Trainer(policy, optimizer, config, max_tokens=64, world=world, reference=reference)
    num_groups = max(sample.group for sample in samples) + 1
    return trainer.step(samples, step=step, num_groups=num_groups), optimizer.captured
