"""The learner without its queues: model, optimizer, checkpoints and weight store behind four verbs.

learner = Learner.start(...)        newest complete checkpoint, or the starting model
metrics, feedback = learner.train(batch, arrays)
policy = learner.publish()
learner.save()
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from common import weights
from common.codec import Arrays
from common.config import RunConfig
from common.history import History
from common.messages import Batch, Feedback, GroupFeedback
from common.messages import Policy as PolicyMessage
from services.learner import checkpoint
from services.learner.checkpoint import LearnerState
from services.learner.config import LearnerConfig
from services.learner.contract import Contract
from services.learner.model import Policy, publish_dtype, tensors
from services.learner.optimizer import Optimizer
from services.learner.report import batch_metrics
from services.learner.samples import TrainSample, train_samples
from services.learner.step import StepResult, train_step

log = logging.getLogger(__name__)


class Learner:
    """See the module. Not thread-safe: one step at a time."""

    def __init__(
        self, *, run: RunConfig, config: LearnerConfig, policy: Policy, tokenizer: Any, history: History,
        state: LearnerState | None,
    ) -> None:  # fmt: skip
        self._run = run
        self._config = config
        self._policy = policy
        self._history = history
        self._contract = Contract(policy=policy, config=config, temperature=run.temperature, tokenizer=tokenizer)
        self.step = 0
        """Batches trained: the version of the policy now."""
        self._optimizer = Optimizer(policy.named_parameters(), config)
        if state is not None:
            self._restore(state)

    @classmethod
    def start(cls, *, run: RunConfig, config: LearnerConfig, history: History) -> "Learner":
        """Load the model and continue from the newest complete checkpoint of the run, if there is one."""
        from transformers import AutoTokenizer

        torch.set_num_threads(config.threads)
        torch.manual_seed(run.seed)
        policy = Policy.load(run.model, temperature=run.temperature, chunk=config.logprob_chunk)
        tokenizer = AutoTokenizer.from_pretrained(run.model)
        state = checkpoint.load_newest(run.path / "checkpoints")
        return cls(run=run, config=config, policy=policy, tokenizer=tokenizer, history=history, state=state)

    def train(self, batch: Batch, arrays: Sequence[Arrays]) -> tuple[dict[str, float], Feedback]:
        """Train on the batch of this step; returns the flat metrics and the feedback for the filter."""
        start = time.monotonic()
        samples = train_samples(
            batch,
            arrays,
            advantage=self._config.advantage,
            max_staleness=self._run.max_staleness,
            mask_stale=self._run.on_stale == "mask",
            overlong_filter=self._config.overlong_filter,
        )
        result = train_step(
            self._policy,
            self._optimizer,
            samples,
            step=batch.step,
            num_groups=len(batch.groups),
            config=self._config,
            check_contract=self._contract.check_for(batch),
        )
        self.step = batch.step + 1
        self._record(batch, samples, result)
        metrics = batch_metrics(batch, samples) | result.tally.metrics() | self._update_metrics(result)
        metrics["train_seconds"] = time.monotonic() - start
        return metrics, self._feedback(batch, result)

    def publish(self) -> PolicyMessage:
        """Write the policy of this step to the weight store."""
        store = self._run.path / "weights"
        dtype = publish_dtype(self._policy.device)
        manifest = weights.publish(store, self.step, lambda path: save_file(tensors(self._policy, dtype), path))
        weights.retire(store, keep=self._config.keep_versions)
        self._history.append("published", version=self.step, digest=manifest.digest)
        folder = weights.version_folder(store, self.step)
        return PolicyMessage(version=self.step, digest=manifest.digest, path=str(folder.resolve()))

    def save(self) -> Path:
        """Write a checkpoint of this step."""
        state = LearnerState(
            step=self.step,
            updates=self._optimizer.updates,
            skips=self._optimizer.skips,
            model=tensors(self._policy, torch.float32),
            optimizer=self._optimizer.state(),
            rng=torch.get_rng_state(),
        )
        path = checkpoint.save(self._run.path / "checkpoints", state, keep=self._config.keep_checkpoints)
        self._history.append("checkpointed", step=self.step)
        return path

    def _restore(self, state: LearnerState) -> None:
        with torch.no_grad():
            for name, parameter in self._policy.named_parameters().items():
                parameter.copy_(state.model[name])
        self._optimizer.restore(state.optimizer, updates=state.updates, skips=state.skips)
        torch.set_rng_state(state.rng)
        self.step = state.step
        log.info("resumed", extra={"step": state.step})

    def _record(self, batch: Batch, samples: Sequence[TrainSample], result: StepResult) -> None:
        ids = [scored.group.prompt.id for scored in batch.groups]
        trained = [sample.version_T[sample.mask_T] for sample in samples if sample.mask_T.any()]
        oldest = int(np.concatenate(trained).min()) if trained else batch.step
        self._history.append("trained", step=batch.step, ids=ids, oldest=oldest, tokens=sum(map(len, trained)))
        if any(update.skipped for update in result.updates):
            log.error("update skipped: gradient not finite", extra={"step": batch.step, "groups": ids})

    def _update_metrics(self, result: StepResult) -> dict[str, float]:
        return {
            "grad_norm": float(np.mean([update.grad_norm for update in result.updates])),
            "lr": result.updates[-1].lr,
            "updates": float(self._optimizer.updates),
            "skipped_updates": float(self._optimizer.skips),
        }

    def _feedback(self, batch: Batch, result: StepResult) -> Feedback:
        rows = zip(batch.groups, result.tally.per_group(), strict=True)
        groups = [
            GroupFeedback(id=scored.group.prompt.id, gradient_variance=variance, clip_share=clip, mean_rho=rho)
            for scored, (variance, clip, rho) in rows
        ]
        return Feedback(step=batch.step, version=batch.step + 1, groups=groups)
