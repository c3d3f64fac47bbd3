"""What an engine must not get away with."""

import math
from dataclasses import replace

import pytest

from common.messages import Span
from services.rollout.engine import Completion, EngineError
from services.rollout.whole import check_whole

TRUTH = Completion(
    token_ids=[5, 6, 7], logprobs=[-0.5, -1.0, 0.0], finish="stop",
    spans=[Span(version=3, start=0, end=1), Span(version=4, start=1, end=3)],
)  # fmt: skip


def check(*completions: Completion, n: int | None = None) -> None:
    check_whole("g", completions, n=len(completions) if n is None else n, oldest=3, newest=4)


def test_a_sample_that_was_overtaken_by_a_version_is_whole() -> None:
    check(TRUTH, TRUTH)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": [], "logprobs": [], "spans": []}, "has no tokens"),
        ({"logprobs": [-0.5, -1.0]}, "3 tokens and 2 log-probabilities"),
        ({"logprobs": [-0.5, math.nan, 0.0]}, "log-probability that is not one"),
        ({"logprobs": [-0.5, -math.inf, 0.0]}, "log-probability that is not one"),
        ({"logprobs": [-0.5, 0.1, 0.0]}, "log-probability that is not one"),  # a probability of 1.1
        ({"spans": [Span(version=5, start=0, end=3)]}, "names version 5 where only 3 to 4"),
        ({"spans": [Span(version=2, start=0, end=3)]}, "names version 2 where only 3 to 4"),
        ({"spans": [Span(version=4, start=0, end=1), Span(version=3, start=1, end=3)]}, "names version 3 where only 4"),
        ({"spans": [Span(version=3, start=0, end=2)]}, "spans for 2 of 3 tokens"),
        ({"spans": [Span(version=3, start=1, end=3)]}, "do not join at token 0"),
    ],
)
def test_a_lie_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=f"group g: sample 1 .*{message}"):
        check(TRUTH, replace(TRUTH, **change))  # type: ignore[arg-type]


def test_a_missing_sample_is_named() -> None:
    with pytest.raises(EngineError, match="1 samples came instead of 2"):
        check(TRUTH, n=2)
