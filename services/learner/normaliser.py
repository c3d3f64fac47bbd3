"""The share of each trained token in the loss of one optimizer step.

    tokens     1 / N              N = trained tokens of the step                     DAPO: every token counts the same
    samples    1 / (S n_i)        S = samples with trained tokens, n_i = those of i  GRPO: every sample counts the same
    constant   1 / (S Lmax)       Lmax = longest response allowed                    Dr.GRPO: no length in it at all

Decided once per optimizer step, over all its micro-batches and ranks and before any correction mask; so the loss does
not depend on how the step is cut. Sources: DAPO (arXiv 2503.14476), eq. 8; GRPO (arXiv 2402.03300), eq. 3; Dr.GRPO
(arXiv 2503.20783), section 3.2.
"""

from collections.abc import Sequence
from typing import Literal

from services.learner.samples import TrainSample

Normaliser = Literal["tokens", "samples", "constant"]


def token_weights(
    samples: Sequence[TrainSample], places: Sequence[int], kind: Normaliser, *, max_tokens: int
) -> list[float]:
    """By place, the weight of each trained token of the sample; 0 for samples that are not in `places`."""
    trained = {place: int(samples[place].mask_T.sum()) for place in places}
    num_tokens = max(1, sum(trained.values()))
    num_samples = max(1, sum(count > 0 for count in trained.values()))
    weights = [0.0] * len(samples)
    for place, count in trained.items():
        if kind == "tokens":
            weights[place] = 1 / num_tokens
        elif kind == "samples":
            weights[place] = 1 / (num_samples * max(1, count))
        else:
            weights[place] = 1 / (num_samples * max_tokens)
    return weights
