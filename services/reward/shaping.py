"""From a verdict to named reward terms.

    task        wrong + score * (correct - wrong), by default +1 for correct and -1 for wrong
    overlong    p(L) = clip((Lmax - Lcache - L) / Lcache, -1, 0) * factor          L in response tokens
    length      -L / Lmax                                                          only if asked for
    repetition  -(share of the runs of n tokens that are repetitions)              only if asked for
    others      the score of the term's own verifier, in [0, 1]

Each is multiplied by its weight, 1 unless the row or [filter] terms says otherwise; one of weight 0 is left out. Their
sum is the reward. An error has no terms: it never becomes a reward. Source of `overlong`: DAPO (arXiv 2503.14476),
section
3.4, eq. 13.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.messages import Sample, Term, Verdict

NO_TOKENS = np.zeros(0, dtype=np.int32)


def overlong_penalty(length: int, *, max_length: int, buffer: int, factor: float) -> float:
    """p(L) for a response of `length` tokens; 0 up to max_length - buffer, -factor from max_length on."""
    return min(0.0, max(-1.0, (max_length - buffer - length) / buffer)) * factor


def repetition_penalty(token_ids: NDArray[np.int32], *, ngram: int) -> float:
    """-(1 - different runs of `ngram` tokens / all such runs); 0 for a response too short to have two."""
    number = len(token_ids) - ngram + 1
    if number < 2:
        return 0.0
    data, size = np.ascontiguousarray(token_ids, dtype="<i4").tobytes(), 4 * ngram
    different = {data[at : at + size] for at in range(0, 4 * number, 4)}
    return len(different) / number - 1


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """The reward rule of a run."""

    correct: float
    wrong: float
    max_length: int
    buffer: int
    factor: float
    ngram: int = 8

    def terms(
        self, verdict: Verdict, sample: Sample, asked: Sequence[Term] = (), token_ids: NDArray[np.int32] = NO_TOKENS
    ) -> dict[str, float]:
        """The terms of one sample; their sum is its shaped reward. `asked` are those that the task names."""
        if verdict.verdict == "error":
            return {}
        values = {"task": self.wrong + verdict.score * (self.correct - self.wrong)}
        if self.factor:
            values["overlong"] = overlong_penalty(
                sample.num_tokens, max_length=self.max_length, buffer=self.buffer, factor=self.factor
            )
        weights = {term.name: term.weight for term in asked}
        if "length" in weights:
            values["length"] = -sample.num_tokens / self.max_length
        if "repetition" in weights:
            values["repetition"] = repetition_penalty(token_ids, ngram=self.ngram)
        values |= verdict.scores
        return {name: value * weights.get(name, 1.0) for name, value in values.items() if weights.get(name, 1.0)}
