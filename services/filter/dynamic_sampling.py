"""Dynamic sampling: a group is trained iff its raw accuracies differ.

    keep  iff  at least `min_survivors` samples have a verdict and max acc - min acc > 1e-6

On the raw accuracy of the verifier, never on the shaped reward: an all-wrong group with answers of different lengths
has different rewards and nothing to teach. Source: DAPO (arXiv 2503.14476), section 3.2.
"""

from collections.abc import Sequence

import numpy as np

from common.messages import Verdict

TOLERANCE = 1e-6


def drop_reason(verdicts: Sequence[Verdict], *, min_survivors: int) -> str | None:
    """Why a group teaches nothing, or None if it is kept."""
    accuracies = np.asarray([v.score for v in verdicts if v.verdict != "error"], dtype=np.float64)
    if accuracies.size < min_survivors:
        return "too_few_survivors"
    if accuracies.max() - accuracies.min() > TOLERANCE:
        return None
    if accuracies.min() >= 1 - TOLERANCE:
        return "all_correct"
    return "all_wrong" if accuracies.max() <= TOLERANCE else "no_spread"
