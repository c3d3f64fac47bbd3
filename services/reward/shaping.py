"""From a verdict to named reward terms.

    task      +1 correct, -1 wrong (a pair of the user's choice)
    overlong  p(L) = clip((Lmax - Lcache - L) / Lcache, -1, 0) * factor          L in response tokens

An error has no terms: it never becomes a reward. Source: DAPO (arXiv 2503.14476), section 3.4, eq. 13.
"""

from dataclasses import dataclass

from common.messages import Sample, Verdict


def overlong_penalty(length: int, *, max_length: int, buffer: int, factor: float) -> float:
    """p(L) for a response of `length` tokens; 0 up to max_length - buffer, -factor from max_length on."""
    return min(0.0, max(-1.0, (max_length - buffer - length) / buffer)) * factor


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """The reward rule of a run."""

    correct: float
    wrong: float
    max_length: int
    buffer: int
    factor: float

    def terms(self, verdict: Verdict, sample: Sample) -> dict[str, float]:
        """The terms of one sample; their sum is its shaped reward."""
        if verdict.verdict == "error":
            return {}
        task = self.wrong + verdict.score * (self.correct - self.wrong)
        if not self.factor:
            return {"task": task}
        overlong = overlong_penalty(
            sample.num_tokens, max_length=self.max_length, buffer=self.buffer, factor=self.factor
        )
        return {"task": task, "overlong": overlong}
