"""The learner without its queues: model, optimizer, checkpoints and weight store behind four verbs.

learner = Learner.start(...)        newest complete checkpoint, or the starting model
metrics, feedback = learner.train(batch, arrays)
policy = learner.publish()                  or  write = learner.stage(); policy = write() beside the next train
write = learner.begin_save(); write()       the second part may run beside the next step

With several ranks every rank has one and calls the same verbs in the same order (crew.py); rank 0 writes the files.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import weights
from common.codec import Arrays
from common.config import RunConfig
from common.history import History
from common.messages import Batch, Feedback, GroupFeedback
from common.messages import Policy as PolicyMessage
from services.learner import checkpoint
from services.learner.checkpoint import Counters
from services.learner.config import LearnerConfig
from services.learner.contract import Contract
from services.learner.model import Policy, publish_dtype
from services.learner.objectives import OBJECTIVES
from services.learner.optimizer import Optimizer
from services.learner.publisher import Publisher, Write
from services.learner.ranks import World
from services.learner.report import batch_metrics, speed_metrics
from services.learner.samples import TrainSample, train_samples
from services.learner.speed import FlopCount, matmul_peak
from services.learner.step import StepResult, Trainer

log = logging.getLogger(__name__)


class Learner:
    """See the module. Not thread-safe: one step at a time."""

    def __init__(
        self, *, run: RunConfig, config: LearnerConfig, policy: Policy, tokenizer: Any, history: History | None,
        world: World | None = None, reference: Policy | None = None,
    ) -> None:  # fmt: skip
        self._run = run
        self._config = config
        self._policy = policy
        self._history = history
        self._world = world or World()
        self._contract = Contract(policy=policy, config=config, temperature=run.temperature, tokenizer=tokenizer)
        self.step = 0
        """Batches trained: the version of the policy now."""
        self._optimizer = Optimizer(policy.trained_parameters(), config)
        self._trainer = Trainer(
            policy, self._optimizer, config, max_tokens=run.max_response_tokens, world=self._world, reference=reference
        )
        self._store = run.path / "weights"
        self._publisher = Publisher(
            policy=policy, world=self._world, store=self._store, snapshot_every=config.snapshot_every,
            dtype=publish_dtype(config, policy.device),
        )  # fmt: skip
        self._flops = FlopCount(policy)
        self._peak = matmul_peak(policy.device, policy.scorer.compute)
        self._resume()

    def train(self, batch: Batch, arrays: Sequence[Arrays]) -> tuple[dict[str, float], Feedback]:
        """Train on the batch of this step; returns the flat metrics and the feedback for the filter."""
        start = time.monotonic()
        kind = self._config.advantage
        samples = train_samples(
            batch,
            arrays,
            advantage=OBJECTIVES[self._config.objective].advantage if kind == "auto" else kind,
            max_staleness=self._run.max_staleness,
            mask_stale=self._run.on_stale == "mask",
            overlong_filter=self._config.overlong_filter,
        )
        result = self._trainer.step(
            samples,
            step=batch.step,
            num_groups=len(batch.groups),
            check_contract=self._contract.check_for(batch),
        )
        self.step = batch.step + 1
        self._record(batch, samples, result)
        metrics = batch_metrics(batch, samples) | result.tally.metrics() | self._update_metrics(result)
        seconds = time.monotonic() - start
        flops = self._flops.step([sample for sample in samples if sample.mask_T.any()])
        peak = self._peak * self._world.size
        speeds = speed_metrics(metrics["tokens"], seconds, result.seconds, flops=flops, peak=peak)
        return metrics | speeds, self._feedback(batch, result)

    def publish(self) -> PolicyMessage | None:
        """Write the policy of this step to the weight store, unless it is there; on rank 0 what to announce."""
        write = self.stage()
        return write() if write else None

    def stage(self) -> Callable[[], PolicyMessage] | None:
        """Take the policy of this step; what rank 0 gets writes it, and may be called while the next is trained."""
        write, version = self._publisher.stage(self.step), self.step
        return partial(self._write, version, write) if write else None

    def _write(self, version: int, write: Write) -> PolicyMessage:
        manifest = write()
        weights.retire(self._store, keep=self._config.keep_versions)
        self._tell("published", version=version, digest=manifest.digest)
        path = str(weights.version_folder(self._store, version).resolve())
        return PolicyMessage(version=version, digest=manifest.digest, path=path)

    def save(self) -> Path:
        """Write a checkpoint of this step."""
        return self._writer(self._tensors())()

    def begin_save(self) -> Callable[[], Path]:
        """Copy what a checkpoint of this step holds; the call that is returned writes it, while training may go on.

        Several ranks have to write at the same time and train none meanwhile: then it is written before this returns.
        """
        if not self._config.background_checkpoints or self._world.size > 1:
            path = self.save()
            return lambda: path
        return self._writer({name: t.to("cpu", copy=True) for name, t in self._tensors().items()})

    def _writer(self, tensors: dict[str, torch.Tensor]) -> Callable[[], Path]:
        counters = Counters(
            step=self.step,
            updates=self._optimizer.updates,
            skips=self._optimizer.skips,
            rng=torch.get_rng_state().numpy().tobytes(),
        )

        def write() -> Path:
            path = checkpoint.save(
                self._run.path / "checkpoints", tensors, counters, self._world,
                keep=self._config.keep_checkpoints, keep_every=self._config.keep_every,
            )  # fmt: skip
            self._tell("checkpointed", step=counters.step)
            return path

        return write

    def _tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds: trained weights and moments, live."""
        model = {f"model/{name}": p.detach() for name, p in self._policy.trained_parameters().items()}
        return model | self._optimizer.state()

    def _resume(self) -> None:
        """Continue from the newest complete checkpoint, if there is one; rank 0 chooses it."""
        newest = checkpoint.newest(self._run.path / "checkpoints") if self._world.leads else None
        path = self._world.from_lead(str(newest or "").encode()).decode()
        if not path:
            return
        counters = checkpoint.read_counters(Path(path))
        checkpoint.load(Path(path), self._tensors(), self._world)
        self._optimizer.continue_from(updates=counters.updates, skips=counters.skips)
        torch.set_rng_state(torch.frombuffer(bytearray(counters.rng), dtype=torch.uint8))
        self.step = counters.step
        log.info("resumed", extra={"step": counters.step})

    def _record(self, batch: Batch, samples: Sequence[TrainSample], result: StepResult) -> None:
        ids = [scored.group.prompt.id for scored in batch.groups]
        trained = [sample.version_T[sample.mask_T] for sample in samples if sample.mask_T.any()]
        oldest = int(np.concatenate(trained).min()) if trained else batch.step
        self._tell("trained", step=batch.step, ids=ids, oldest=oldest, tokens=sum(map(len, trained)))
        if any(update.skipped for update in result.updates):
            log.error("update skipped: gradient not finite", extra={"step": batch.step, "groups": ids})

    def _tell(self, event: str, **fields: Any) -> None:
        if self._history is not None:
            self._history.append(event, **fields)

    def _update_metrics(self, result: StepResult) -> dict[str, float]:
        return {
            "grad_norm": float(np.mean([update.grad_norm for update in result.updates] or [0.0])),
            "lr": result.updates[-1].lr if result.updates else 0.0,
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
