"""A batch of groups as a flat list of training samples: advantages, ages and masks, decided before any packing.

Batch, arrays  ->  [TrainSample]        survivors only; a sample keeps its place in its group's statistics even if
                                        its tokens are masked
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.codec import Arrays
from common.errors import DapoError
from common.messages import Batch, Sample, Scored
from services.learner.advantage import advantages


class StaleTokenError(DapoError):
    """A token older than max_staleness reached the learner: the filter's bound does not hold."""


@dataclass(frozen=True, kw_only=True)
class TrainSample:
    """One response with what the loss needs. P prompt tokens, T response tokens."""

    group: int
    """Place of its group in the batch."""
    prompt_P: NDArray[np.int32]
    response_T: NDArray[np.int32]
    mu_logp_T: NDArray[np.float32]
    """Behaviour log-probabilities, by the engine."""
    version_T: NDArray[np.int64]
    """Policy version that sampled each token."""
    mask_T: NDArray[np.bool_]
    """Tokens that are trained: the response up to and including its stop token, minus those that are too old,
    truncated, or without a behaviour log-probability."""
    advantage: float

    @property
    def length(self) -> int:
        """P + T."""
        return len(self.prompt_P) + len(self.response_T)


def train_samples(
    batch: Batch,
    arrays: Sequence[Arrays],
    *,
    advantage: Literal["std", "mean", "leave_one_out"],
    max_staleness: int,
    mask_stale: bool,
    overlong_filter: bool,
) -> list[TrainSample]:
    """The survivors of all groups, in order; raises `StaleTokenError` for a token that must not be trained."""
    samples = []
    for place, (scored, frames) in enumerate(zip(batch.groups, arrays, strict=True)):
        for index, value in zip(survivors(scored), advantages(shaped_rewards(scored), advantage), strict=True):
            sample = scored.group.samples[index]
            start = sum(s.num_tokens for s in scored.group.samples[:index])
            part = slice(start, start + sample.num_tokens)
            version_T = token_versions(sample)
            young_T = batch.step - version_T <= max_staleness
            if not mask_stale and not young_T.all():
                raise StaleTokenError(
                    f"step {batch.step}: group {scored.group.prompt.id} has a token of version {version_T.min()}, "
                    f"older than max_staleness {max_staleness} allows"
                )
            whole = not (overlong_filter and sample.finish == "length")
            known_T = ~np.isnan(frames.logprobs[part])
            samples.append(
                TrainSample(
                    group=place,
                    prompt_P=frames.prompt_ids,
                    response_T=frames.token_ids[part],
                    mu_logp_T=frames.logprobs[part],
                    version_T=version_T,
                    mask_T=young_T & known_T & whole,
                    advantage=float(value),
                )
            )
    return [sample for sample in samples if sample.length and len(sample.response_T)]


def survivors(scored: Scored) -> list[int]:
    """Indices of the samples that a verifier could judge."""
    return [index for index, verdict in enumerate(scored.verdicts) if verdict.verdict != "error"]


def shaped_rewards(scored: Scored) -> list[float]:
    """Sum of the reward terms of each survivor."""
    return [sum(scored.terms[index].values()) for index in survivors(scored)]


def token_versions(sample: Sample) -> NDArray[np.int64]:
    """The policy version of each token, from the spans."""
    spans = sample.spans
    return np.repeat([span.version for span in spans], [span.end - span.start for span in spans]).astype(np.int64)
