"""Dynamic sampling: a group is trained iff its raw accuracies differ.

    keep  iff  at least `min_survivors` samples have a verdict, max acc - min acc > 1e-6,
               and the pass rate, the mean accuracy, lies in the band (0 to 1 unless the user narrows it)

On a raw score, the verifier's accuracy unless [filter] metric names that of a further verifier, never on the shaped
reward: an all-wrong group with answers of different lengths has different rewards and nothing to teach. Source: DAPO
(arXiv 2503.14476), section 3.2.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.messages import Verdict
from services.filter.judging import ACCURACY

TOLERANCE = 1e-6

REMEDIES = {
    "all_wrong": "choose easier rows or a stronger model, or a larger [run] group_size",
    "all_correct": "choose harder rows, or a larger [run] group_size",
    "too_easy": "choose harder rows, or widen [filter] pass_band",
    "too_hard": "choose easier rows, or widen [filter] pass_band",
    "overlong": "raise [run] max_response_tokens; if a rollout's log calls prompts too long, [run] max_prompt_tokens",
    "no_spread": "use a verifier that tells the answers apart",
    "too_few_survivors": "look in the log of the reward service for why its verifier fails",
    "malformed": "look in the log of the filter for what does not decode",
    "dead": "look in the logs of rollout and reward for why their items fail",
    "stale": "raise [run] max_staleness, or wait for slow groups with on_stale",
    "version_lie": "check that every rollout loads the versions that the learner publishes",
}
"""Reason of a drop -> what a user whose groups are all dropped for it may do."""


def drop_reason(
    verdicts: Sequence[Verdict],
    *,
    min_survivors: int,
    dynamic: bool = True,
    pass_band: tuple[float, float] = (0.0, 1.0),
    metric: str = ACCURACY,
    cut: bool = False,
) -> str | None:
    """Why a group is not trained, or None if it is kept.

    `cut`: every answer ended for lack of room. Not `dynamic`: all is kept that has survivors, as without DAPO 3.2.
    """
    accuracies = np.asarray([measured(v, metric) for v in verdicts if v.verdict != "error"], dtype=np.float64)
    if accuracies.size < min_survivors:
        return "too_few_survivors"
    if not dynamic:
        return None
    if accuracies.max() - accuracies.min() <= TOLERANCE:
        return _alike(float(accuracies.max()), cut=cut)
    return _outside(accuracies, pass_band)


def measured(verdict: Verdict, metric: str) -> float:
    """The score of that name; raises `UserError` if the reward service does not give it (D12)."""
    if metric == ACCURACY:
        return verdict.score
    if metric not in verdict.scores:
        names = ", ".join((ACCURACY, *verdict.scores))
        raise UserError(f"[filter] metric `{metric}` is not among the scores that the reward gives: {names}")
    return verdict.scores[metric]


def _alike(accuracy: float, *, cut: bool) -> str:
    if accuracy >= 1 - TOLERANCE:
        return "all_correct"
    if accuracy > TOLERANCE:
        return "no_spread"
    return "overlong" if cut else "all_wrong"


def _outside(accuracies: NDArray[np.float64], band: tuple[float, float]) -> str | None:
    pass_rate = accuracies.mean()
    if pass_rate < band[0] - TOLERANCE:
        return "too_hard"
    return "too_easy" if pass_rate > band[1] + TOLERANCE else None


def cap_message(cap: int, *, dropped: Mapping[str, int], kept: int) -> str:
    """Why a run stops that drops `cap` groups in a row: the cap, the counts and what to change."""
    reasons = sorted(dropped.items(), key=lambda item: -item[1])
    counts = ", ".join(f"{reason} {count}" for reason, count in reasons)
    return (
        f"[filter] max_dropped_in_a_row = {cap} is reached: the last {cap} groups were dropped, none was kept "
        f"({kept + sum(dropped.values())} groups generated, {kept} kept, dropped: {counts}): "
        f"{REMEDIES[reasons[0][0]]}, or raise the cap"
    )
