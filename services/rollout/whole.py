"""Whether an engine's completions are whole: what is not is sampled again, here or elsewhere, and never judged.

An engine that errs must not be believed: a log-probability that is not a number would poison a batch, a version that
was not loaded would hide the age of a token, and an answer without tokens would count as a wrong one.
"""

import math
from collections.abc import Sequence

from services.rollout.engine import Completion, EngineError

ABOVE_ZERO = 1e-3
"""What rounding may add to a log-probability of 0."""


def check_whole(group: str, completions: Sequence[Completion], *, n: int, oldest: int, newest: int) -> None:
    """Raise `EngineError` that names the group and its first fault.

    `oldest` is the version that was loaded when the request began, `newest` the last one that the engine was given.
    """
    fault = _fault(completions, n=n, oldest=oldest, newest=newest)
    if fault:
        raise EngineError(f"group {group}: {fault}")


def _fault(completions: Sequence[Completion], *, n: int, oldest: int, newest: int) -> str:
    if len(completions) != n:
        return f"{len(completions)} samples came instead of {n}"
    for place, completion in enumerate(completions):
        fault = _fault_in(completion) or _fault_of_versions(completion, oldest=oldest, newest=newest)
        if fault:
            return f"sample {place} {fault}"
    return ""


def _fault_in(completion: Completion) -> str:
    num_tokens = len(completion.token_ids)
    if num_tokens == 0:
        return "has no tokens"
    if len(completion.logprobs) != num_tokens:
        return f"has {num_tokens} tokens and {len(completion.logprobs)} log-probabilities"
    if not all(math.isfinite(logprob) and logprob <= ABOVE_ZERO for logprob in completion.logprobs):
        return "has a log-probability that is not one"
    return ""


def _fault_of_versions(completion: Completion, *, oldest: int, newest: int) -> str:
    """Spans join from the first token to the last, and name versions that the engine had meanwhile, in order."""
    at, version = 0, oldest
    for span in completion.spans:
        if span.start != at or span.end < at:
            return f"has spans that do not join at token {at}"
        if not version <= span.version <= newest:
            return f"names version {span.version} where only {version} to {newest} can have been"
        at, version = span.end, span.version
    return "" if at == len(completion.token_ids) else f"has spans for {at} of {len(completion.token_ids)} tokens"
