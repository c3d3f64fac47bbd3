"""`dapo doctor --loss [CONFIG]`: is the loss on this hardware the loss of the formula, however a step is cut?

    random samples -> one step's gradient, cut in several ways -> greatest relative difference | limit | verdict

Without a configuration a small random model is used; with one, its model, its objective and its dtype. Nothing is
trained and nothing is written. Exit status 0 if every difference is within its limit, else 1.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.learner.config import LearnerConfig
from services.learner.model import Policy, compute_dtype, local_device
from services.learner.optimizer import Optimizer, Update
from services.learner.packing import pack
from services.learner.samples import TrainSample
from services.learner.step import Trainer

LENGTHS = (1, 40, 7, 90, 22, 5, 64, 13, 30, 2, 75, 9)
GROUP_SIZE = 4
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 5e-2}
"""Of relative differences between ways to compute the same, by what the layers compute in."""


class Finding(NamedTuple):
    """One comparison."""

    what: str
    error: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the difference is within its limit; a difference that is no number is not."""
        return self.error <= self.limit


class _Probe(Optimizer):
    """Keeps the gradient instead of stepping."""

    gradient: Tensor

    def step(self) -> Update:
        self.gradient = torch.cat([p.grad.flatten() for p in self.parameters.values() if p.grad is not None])
        return Update(grad_norm=float(self.gradient.norm()), lr=0.0, skipped=False)


def examine(policy: Policy, settings: LearnerConfig, *, max_tokens: int, temperature: float) -> list[Finding]:
    """All comparisons for a policy."""
    limit = LIMITS[policy.scorer.compute]
    samples = make_samples(policy.model.config.vocab_size)
    whole = _gradient(policy, samples, settings, max_tokens, budget=100_000)

    def against(what: str, gradient: Tensor) -> Finding:
        return Finding(what, _relative(gradient, whole), limit)

    order = np.random.default_rng(0).permutation(len(samples))
    shuffled = [samples[place] for place in order]
    return [
        against("gradient: sample by sample against one packed micro-batch",
                _gradient(policy, samples, settings, max_tokens, budget=1)),
        against("gradient: micro-batches of 100 tokens", _gradient(policy, samples, settings, max_tokens, budget=100)),
        against("gradient: samples in another order",
                _gradient(policy, shuffled, settings, max_tokens, budget=100_000)),
        against("gradient: the same step again", _gradient(policy, samples, settings, max_tokens, budget=100_000)),
        Finding("log-probability: with other samples beside it", _leak(policy, samples), limit),
        Finding("log-probability: in chunks against whole logits", _chunks(policy, samples, temperature), limit),
    ]  # fmt: skip


def make_samples(vocabulary: int) -> list[TrainSample]:
    """Groups of unlike lengths; half of them share a prompt."""
    rng = np.random.default_rng(20261201)
    prompts = [rng.integers(0, vocabulary, 6 + 9 * place).astype(np.int32) for place in range(len(LENGTHS))]
    return [
        TrainSample(
            group=place // GROUP_SIZE,
            prompt_P=prompts[0] if place < len(LENGTHS) // 2 else prompts[place],
            response_T=rng.integers(0, vocabulary, length).astype(np.int32),
            mu_logp_T=rng.normal(-np.log(vocabulary), 0.3, length).astype(np.float32),
            version_T=np.zeros(length, dtype=np.int64),
            mask_T=np.ones(length, dtype=np.bool_),
            advantage=1.0 if place % 2 else -1.0,
        )
        for place, length in enumerate(LENGTHS)
    ]


def _gradient(
    policy: Policy, samples: Sequence[TrainSample], settings: LearnerConfig, max_tokens: int, *, budget: int
) -> Tensor:
    """The gradient of one optimizer step over all samples."""
    settings = dataclasses.replace(settings, micro_batch_tokens=budget, updates_per_batch=1, kl_coef=0.0)
    probe = _Probe(policy.trained_parameters(), settings)
    probe.zero_grad()
    Trainer(policy, probe, settings, max_tokens=max_tokens).step(samples, step=0, num_groups=len(samples))
    return probe.gradient


def _leak(policy: Policy, samples: Sequence[TrainSample]) -> float:
    """How much a sample's log-probabilities change when it is packed with others."""
    with torch.no_grad():
        alone = policy.scores(pack(samples, [1], policy.device)).logp_N
        packed = pack(samples, range(len(samples)), policy.device)
        beside = policy.scores(packed).logp_N[packed.sample_N == 1]
    return _relative(beside, alone)


def _chunks(policy: Policy, samples: Sequence[TrainSample], temperature: float) -> float:
    """Chunked log-probabilities against log_softmax of all logits at once, from the same hidden states."""
    batch = pack(samples, range(4), policy.device)
    kept: list[Tensor] = []
    handle = policy.model.base_model.register_forward_hook(lambda *call: kept.append(call[2].last_hidden_state))
    with torch.no_grad():
        chunked = policy.scores(batch).logp_N
        head_VD = policy.model.get_output_embeddings().weight
        hidden_ND = kept[0][0, batch.source_N].to(policy.scorer.compute)
        logits_NV = hidden_ND.float() @ head_VD.to(policy.scorer.compute).float().T / temperature
        naive = logits_NV.log_softmax(-1).gather(-1, batch.target_N[:, None])[:, 0]
    handle.remove()
    return _relative(chunked, naive)


def _relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-30))


def small_policy(settings: LearnerConfig) -> Policy:
    """A random Qwen2 of 2 layers with grouped key heads and a tied head."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 5000, "tie_word_embeddings": True}
    device = local_device()
    model = Qwen2ForCausalLM(Qwen2Config(**shape, **heads)).to(device).eval()
    return Policy(model, temperature=1.0, compute=compute_dtype(settings, device))


def _policy(path: str | None, overrides: Sequence[str]) -> tuple[Policy, LearnerConfig, RunConfig]:
    if path is None:
        settings = LearnerConfig()
        return small_policy(settings), settings, RunConfig(name="doctor", model="a small random model")
    tree = config.read(path, overrides)
    run, settings = config.section(tree, "run", RunConfig), config.section(tree, "learner", LearnerConfig)
    return Policy.load(run.model, temperature=run.temperature, config=settings), settings, run


def _table(findings: Sequence[Finding], title: str) -> Table:
    table = Table("comparison", "relative difference", "limit", "", title=title, title_justify="left")
    for finding in findings:
        table.add_row(
            finding.what, f"{finding.error:.1e}", f"{finding.limit:.0e}", "holds" if finding.holds else "BROKEN"
        )
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Examine and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo doctor", description="Check what a run relies on, on this machine.")
    parser.add_argument("config", nargs="?", help="TOML file of a run; default: a small random model")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    parser.add_argument("--loss", action="store_true", help="the numerics of the learner's loss", required=True)
    arguments = parser.parse_intermixed_args(argv)
    try:
        policy, settings, run = _policy(arguments.config, arguments.overrides)
    except UserError as error:
        print(f"dapo doctor: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    torch.set_num_threads(settings.threads)
    findings = examine(policy, settings, max_tokens=run.max_response_tokens, temperature=run.temperature)
    title = f"{run.model} on {policy.device}, {str(policy.scorer.compute).removeprefix('torch.')}, {settings.objective}"
    Console().print(_table(findings, title))
    return 0 if all(finding.holds for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
