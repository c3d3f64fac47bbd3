"""A small learner, and batches that it can train."""

import dataclasses
from pathlib import Path

import numpy as np

from common.codec import Arrays
from common.config import RunConfig
from common.history import History
from common.messages import (
    Batch,
    ChatMessage,
    Group,
    Prompt,
    Sample,
    Sampling,
    Scored,
    Span,
    Task,
    Verdict,
)
from services.learner.config import LearnerConfig
from services.learner.learner import Learner
from services.learner.model import Policy
from tests.unit.learner.models import current_logps, make_samples, tiny_policy

CONFIG = LearnerConfig(lr=1e-3, warmup_steps=3, checkpoint_every=2, keep_versions=10)


def make_run(folder: Path, **changes: object) -> RunConfig:
    return RunConfig(name="r", model="none", folder=str(folder), **{"steps": 4, **changes})  # type: ignore[arg-type]


def make_learner(run: RunConfig, config: LearnerConfig = CONFIG) -> Learner:
    """A learner that continues from the run's newest checkpoint, if there is one."""
    history = History(run.path / "history", "learner-0")
    # what the engine says is made up here, so the contract would rightly refuse it: it has tests of its own
    lenient = dataclasses.replace(config, contract_limit=config.contract_limit or 100.0)
    return Learner(run=run, config=lenient, policy=tiny_policy(), tokenizer=None, history=history)


def batch(step: int, *, policy: Policy | None = None, shift: float = 0.0) -> tuple[Batch, list[Arrays]]:
    """Two groups of three samples; engine log-probabilities are made up, or the policy's own plus `shift`."""
    groups, arrays = [], []
    for place in range(2):
        samples = make_samples([4, 6, 5], seed=10 * step + place, group_size=3)
        logps = current_logps(policy, samples) if policy else [s.mu_logp_T for s in samples]
        prompt_ids = samples[0].prompt_P
        prompt = Prompt(
            id=f"{step}/{place:06d}", row=0, chat=[ChatMessage(role="user", content="?")],
            task=Task(verifier="math", gold="1"), sampling=Sampling(n=3, temperature=1.0, max_tokens=8, seed=0),
            min_version=step,
        )  # fmt: skip
        if policy:  # the prompt is the group's, so score the responses behind it
            samples = [dataclasses.replace(sample, prompt_P=prompt_ids) for sample in samples]
            logps = current_logps(policy, samples)
        wire = [
            Sample(
                num_tokens=len(s.response_T), finish="stop", text="",
                spans=[Span(version=step, start=0, end=len(s.response_T))],
            )
            for s in samples
        ]  # fmt: skip
        rewards = [1.0, -1.0, -1.0]
        verdicts = [Verdict(verdict="correct" if r > 0 else "wrong", score=float(r > 0)) for r in rewards]
        terms = [{"task": r} for r in rewards]
        groups.append(Scored(group=Group(prompt=prompt, samples=wire), verdicts=verdicts, terms=terms))
        response = np.concatenate([s.response_T for s in samples])
        arrays.append(Arrays(prompt_ids, response, (np.concatenate(logps) + shift).astype(np.float32)))
    return Batch(step=step, groups=groups, totals={"issued": 2.0}), arrays


def train(learner: Learner, steps: range) -> list[str]:
    """Digests of the versions that the steps publish."""
    digests = []
    for step in steps:
        learner.train(*batch(step))
        digests.append(learner.publish().digest)
    return digests
