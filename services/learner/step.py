"""One learner step: a batch in, a better policy and its numbers out. Synchronous; no queue, no clock.

    samples -> [proximal pass] -> for each mini-batch of groups:
                                      N = its trained tokens
                                      for each micro-batch:  scores -> r, rho, w -> l -> backward(sum(m w l) / N)
                                      [start-up contract] -> optimizer step

N counts the whole optimizer step before correction masks, so the loss does not depend on how the step is cut.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from services.learner.config import LearnerConfig
from services.learner.correction import clamped_ratio, weights
from services.learner.loss import dapo_loss
from services.learner.model import Policy
from services.learner.optimizer import Optimizer, Update
from services.learner.packing import MicroBatch, pack, split
from services.learner.samples import TrainSample
from services.learner.tally import Tally

ContractCheck = Callable[[float, Sequence[TrainSample]], None]
"""Called with the mean |engine - learner| before the first update; raises to refuse the run."""


class StepResult(NamedTuple):
    """What a step did."""

    updates: list[Update]
    tally: Tally


def train_step(
    policy: Policy,
    optimizer: Optimizer,
    samples: Sequence[TrainSample],
    *,
    step: int,
    num_groups: int,
    config: LearnerConfig,
    check_contract: ContractCheck | None = None,
) -> StepResult:
    """Train on the samples of one batch; raises what `check_contract` raises before anything is changed."""
    proximal = proximal_mode(config)
    prox_logps = no_grad_logps(policy, samples, config) if proximal == "recompute" else None
    tally = Tally(num_groups)
    updates: list[Update] = []
    for places in mini_batches(samples, num_groups=num_groups, count=config.updates_per_batch):
        optimizer.zero_grad()
        N = max(1.0, float(sum(samples[place].mask_T.sum() for place in places)))
        for part in split([samples[place] for place in places], budget=config.micro_batch_tokens):
            batch = pack(samples, [places[i] for i in part], policy.device)
            prox_N = None if prox_logps is None else torch.cat([prox_logps[place] for place in batch.order])
            _backward(policy, batch, N, tally, step=step, config=config, proximal=proximal, prox_logp_N=prox_N)
        if check_contract is not None and not updates and tally.engine_difference is not None:
            check_contract(tally.engine_difference, samples)
        updates.append(optimizer.step())
    return StepResult(updates, tally)


def proximal_mode(config: LearnerConfig) -> str:
    """`auto` resolved: one optimizer step per batch needs no extra pass, its first ratio is 1."""
    if config.proximal != "auto":
        return config.proximal
    return "current" if config.updates_per_batch == 1 else "recompute"


def mini_batches(samples: Sequence[TrainSample], *, num_groups: int, count: int) -> list[list[int]]:
    """Places of the samples by mini-batch: consecutive groups, as equal in number as can be; none empty."""
    parts: list[list[int]] = [[] for _ in range(count)]
    for place, sample in enumerate(samples):
        parts[sample.group * count // num_groups].append(place)
    return [part for part in parts if part]


def no_grad_logps(policy: Policy, samples: Sequence[TrainSample], config: LearnerConfig) -> list[Tensor]:
    """Log-probabilities of every sample's response under the policy as it is now."""
    result: list[Tensor] = [torch.empty(0)] * len(samples)
    with torch.no_grad():
        for part in split(samples, budget=config.micro_batch_tokens):
            batch = pack(samples, part, policy.device)
            lengths = [len(samples[place].response_T) for place in batch.order]
            for place, logp_T in zip(batch.order, policy.scores(batch).logp_N.split(lengths), strict=True):
                result[place] = logp_T
    return result


def _backward(
    policy: Policy,
    batch: MicroBatch,
    N: float,
    tally: Tally,
    *,
    step: int,
    config: LearnerConfig,
    proximal: str,
    prox_logp_N: Tensor | None,
) -> None:
    """Add the gradient and the sums of one micro-batch."""
    scores = policy.scores(batch)
    if prox_logp_N is None:
        prox_logp_N = batch.mu_logp_N if proximal == "behaviour" else scores.logp_N.detach()
    loss = dapo_loss(
        scores.logp_N, prox_logp_N, batch.advantage_N,
        eps_low=config.eps_low, eps_high=config.eps_high, dual_clip=config.dual_clip,
    )  # fmt: skip
    rho_N = clamped_ratio(prox_logp_N, batch.mu_logp_N)
    kind = "none" if proximal == "behaviour" else config.correction
    w_N = weights(rho_N, batch.row_N, kind=kind, cap=config.tis_cap)
    ((batch.mask_N * w_N * loss.loss_N).sum() / N).backward()
    coefficient_N = batch.advantage_N * w_N * loss.coefficient_N
    gradient_N = coefficient_N.square() * (1 - 2 * scores.logp_N.detach().exp() + scores.square_N)
    tally.add(batch, loss, w_N=w_N, rho_N=rho_N, entropy_N=scores.entropy_N, gradient_N=gradient_N)
    tally.add_difference(batch, scores.logp_N, step=step)
