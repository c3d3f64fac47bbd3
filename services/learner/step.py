"""One learner step: a batch in, a better policy and its numbers out. Synchronous; no queue, no clock.

    samples -> [reference pass] [proximal pass] -> for each mini-batch of groups:
                   c = normaliser over the mini-batch
                   for each micro-batch of this rank:   scores -> r, rho, w -> l -> backward(sum(c w l) x ranks)
                   [start-up contract] -> optimizer step

c is decided over the whole optimizer step before anything is cut, so the loss depends neither on micro-batches nor on
ranks. FSDP2 averages gradients over the ranks, hence the factor.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from services.learner import proximal
from services.learner.config import LearnerConfig
from services.learner.correction import weights
from services.learner.model import Policy
from services.learner.normaliser import token_weights
from services.learner.objectives import OBJECTIVES, Clip, Objective, Tokens
from services.learner.objectives.ratio import log_ratio
from services.learner.optimizer import Optimizer, Update
from services.learner.packing import MicroBatch, pack, plan
from services.learner.proximal import Proximal
from services.learner.ranks import World
from services.learner.regularisers import k3, penalty
from services.learner.samples import TrainSample
from services.learner.speed import Stopwatch
from services.learner.tally import Tally

ContractCheck = Callable[[float, Sequence[TrainSample]], None]
"""Called with the mean |engine - learner| before the first update; raises to refuse the run."""


class StepResult(NamedTuple):
    """What a step did."""

    updates: list[Update]
    tally: Tally
    seconds: dict[str, float]
    """By phase: `reference`, `proximal`, `forward`, `backward`, `optimizer`."""


class Anchors(NamedTuple):
    """What the tokens of a micro-batch are held against, besides the behaviour policy."""

    recomputed_N: Tensor | None
    """log pi_prox by the extra pass, where the mode has one."""
    reference_N: Tensor | None
    """log pi_ref, where there is a KL term."""
    share_N: Tensor
    """a, for the log-linear mode."""


class Trainer:
    """What a step needs and does not change from step to step."""

    def __init__(
        self, policy: Policy, optimizer: Optimizer, config: LearnerConfig, *, max_tokens: int,
        world: World | None = None, reference: Policy | None = None,
    ) -> None:  # fmt: skip
        self.policy = policy
        self.optimizer = optimizer
        self._config = config
        self._max_tokens = max_tokens
        self._world = world or World()
        self._reference = reference
        self._objective: Objective = OBJECTIVES[config.objective]
        self._clip = clip_of(config)
        self._proximal: Proximal = proximal.resolve(config.proximal, config.updates_per_batch)

    def step(
        self, samples: Sequence[TrainSample], *, step: int, num_groups: int, check_contract: ContractCheck | None = None
    ) -> StepResult:
        """Train on the samples of one batch; raises what `check_contract` raises before anything is changed."""
        tally = Tally(num_groups, self.policy.device, step=step)
        watch = Stopwatch(self.policy.device)
        updates: list[Update] = []
        parts = mini_batches(samples, num_groups=num_groups, count=self._config.updates_per_batch)
        with watch.phase("reference"):
            reference = self._logps(self._reference, samples, parts) if self._reference else None
        with watch.phase("proximal"):
            recomputed = self._logps(self.policy, samples, parts) if self._proximal == "recompute" else None
        for done, places in enumerate(parts):
            self.optimizer.zero_grad()
            for batch in self._micro_batches(samples, places):
                share_N = proximal.share_of_the_way(batch.version_N, step=step, progress=done / len(parts))
                anchors = Anchors(_chosen(recomputed, batch), _chosen(reference, batch), share_N)
                self._backward(batch, anchors, tally, watch)
            if check_contract is not None and not updates:
                difference = tally.agree_on_difference(self._world)
                if difference is not None:
                    check_contract(difference, samples)
            with watch.phase("optimizer"):
                updates.append(self.optimizer.step())
        tally.close(self._world, num_updates=len(updates))
        return StepResult(updates, tally, dict(watch.seconds))

    def _micro_batches(self, samples: Sequence[TrainSample], places: Sequence[int]) -> Iterator[MicroBatch]:
        """This rank's part of one optimizer step; samples without a trained token cost nothing."""
        shares = token_weights(samples, places, self._objective.normaliser, max_tokens=self._max_tokens)
        trained = [place for place in places if samples[place].mask_T.any()]
        ranks, budget = self._world.size, self._config.micro_batch_tokens
        for part in plan(samples, trained, budget=budget, ranks=ranks)[self._world.rank]:
            yield pack(samples, part, self.policy.device, shares)

    def _backward(self, batch: MicroBatch, anchors: Anchors, tally: Tally, watch: Stopwatch) -> None:
        """Add the gradient and the sums of one micro-batch."""
        config = self._config
        with watch.phase("forward"):
            scores = self.policy.scores(batch)
            prox_N = proximal.proximal_logps(
                self._proximal, scores.logp_N, batch.mu_logp_N, anchors.recomputed_N, anchors.share_N
            )
            rho_N = log_ratio(prox_N, batch.mu_logp_N).exp()
            kind = "none" if self._proximal == "behaviour" else config.correction
            w_N = weights(rho_N, batch.sample_N, batch.mask_N, kind=kind, cap=config.tis_cap)
            advantage_N = batch.advantage_N.to(scores.logp_N.dtype)
            tokens = Tokens(scores.logp_N, prox_N, advantage_N, batch.sample_N, batch.mask_N)
            objective = self._objective.loss(tokens, self._clip)
            extra_N = penalty(scores, anchors.reference_N, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)
            token_N = w_N * objective.loss_N if extra_N is None else w_N * objective.loss_N + extra_N
            loss_N = batch.weight_N.to(token_N.dtype) * token_N
        with watch.phase("backward"):
            (loss_N.sum() * self._world.size).backward()
        kl_N = None if anchors.reference_N is None else k3(scores.logp_N, anchors.reference_N)
        tally.add(batch, scores, objective, loss_N=loss_N, w_N=w_N, rho_N=rho_N, reference_kl_N=kl_N)

    def _logps(
        self, policy: Policy, samples: Sequence[TrainSample], parts: Sequence[Sequence[int]]
    ) -> dict[int, Tensor]:
        """Log-probabilities by place of every sample that this rank will train, under a policy as it is now."""
        result: dict[int, Tensor] = {}
        for places in parts:
            for batch in self._micro_batches(samples, places):
                with torch.no_grad():
                    logp_N = policy.scores(batch).logp_N
                lengths = [len(samples[place].response_T) for place in batch.order]
                result |= zip(batch.order, logp_N.split(lengths), strict=True) if lengths else {}
        return result


def clip_of(config: LearnerConfig) -> Clip:
    """The clips of the configuration; what it leaves open is the objective's own."""
    own = OBJECTIVES[config.objective].clip
    return Clip(
        own.low if config.eps_low is None else config.eps_low,
        own.high if config.eps_high is None else config.eps_high,
        own.dual if config.dual_clip is None else config.dual_clip,
    )


def mini_batches(samples: Sequence[TrainSample], *, num_groups: int, count: int) -> list[list[int]]:
    """Places of the samples by mini-batch: consecutive groups, as equal in number as can be; none empty."""
    parts: list[list[int]] = [[] for _ in range(count)]
    for place, sample in enumerate(samples):
        parts[sample.group * count // num_groups].append(place)
    return [part for part in parts if part]


def _chosen(logps: dict[int, Tensor] | None, batch: MicroBatch) -> Tensor | None:
    """The values of a micro-batch's samples, in its order; a blank has one token."""
    if logps is None:
        return None
    parts = [logps[place] for place in batch.order]
    return torch.cat(parts) if parts else torch.zeros_like(batch.mu_logp_N)
