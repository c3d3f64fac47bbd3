import msgspec
import numpy as np
import pytest

from common.messages import Sample, Span, Term, Verdict
from services.reward.shaping import Shaping, overlong_penalty, repetition_penalty


def sample(length: int) -> Sample:
    return Sample(num_tokens=length, finish="stop", spans=[Span(version=0, start=0, end=length)], text="")


@pytest.mark.parametrize(
    ("length", "penalty"),
    [
        (0, 0.0), (1, 0.0), (16383, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20479, -4095 / 4096),
        (20480, -1.0), (30000, -1.0),
    ],
)  # fmt: skip
def test_the_penalty_ramps_over_the_last_tokens_before_the_limit(length: int, penalty: float) -> None:
    assert overlong_penalty(length, max_length=20480, buffer=4096, factor=1.0) == penalty


def test_the_terms_are_named_and_an_error_has_none() -> None:
    rule = Shaping(correct=1.0, wrong=-1.0, max_length=10, buffer=4, factor=2.0)
    correct, wrong = Verdict(verdict="correct", score=1.0), Verdict(verdict="wrong")
    assert rule.terms(correct, sample(8)) == {"task": 1.0, "overlong": -1.0}  # (10 - 4 - 8) / 4 * 2
    assert rule.terms(wrong, sample(2)) == {"task": -1.0, "overlong": 0.0}
    assert rule.terms(Verdict(verdict="error", reason="worker died"), sample(10)) == {}


def test_a_factor_of_zero_switches_the_penalty_off() -> None:
    rule = Shaping(correct=1.0, wrong=0.0, max_length=10, buffer=4, factor=0.0)
    assert rule.terms(Verdict(verdict="correct", score=1.0), sample(10)) == {"task": 1.0}


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [
        ([], 0.0), ([1, 2], 0.0), ([1, 2, 3], 0.0),
        ([1, 2, 1, 2], -1 / 3),  # runs of two: 12 21 12, of which two differ
        ([7] * 11, -0.9), (list(range(100)), 0.0),
    ],
)  # fmt: skip
def test_the_repetition_penalty_is_the_share_of_runs_that_repeat(tokens: list[int], penalty: float) -> None:
    assert repetition_penalty(np.array(tokens, dtype=np.int32), ngram=2) == pytest.approx(penalty)


def test_terms_are_added_weighted_and_left_out_as_the_task_asks() -> None:
    rule = Shaping(correct=1.0, wrong=-1.0, max_length=10, buffer=4, factor=1.0, ngram=1)
    verdict = Verdict(verdict="correct", score=1.0, scores={"format": 1.0, "style": 0.5})
    asked = [
        Term(name="length", weight=0.5), Term(name="repetition"), Term(name="overlong", weight=0.0),
        Term(name="format", weight=0.25, verifier="regex"), Term(name="style", weight=0.0, verifier="judge"),
    ]  # fmt: skip
    terms = rule.terms(verdict, sample(8), asked, np.array([1, 1, 2, 2, 3, 3, 4, 4], dtype=np.int32))
    # length 8 of 10 at half weight; 4 of 8 tokens repeat; overlong and style weigh nothing
    assert terms == {"task": 1.0, "length": -0.4, "repetition": -0.5, "format": 0.25}
    assert rule.terms(msgspec.structs.replace(verdict, verdict="error"), sample(8), asked) == {}


def test_a_partial_score_is_paid_in_part() -> None:
    rule = Shaping(correct=1.0, wrong=-1.0, max_length=10, buffer=4, factor=0.0)
    assert rule.terms(Verdict(verdict="wrong", score=0.25), sample(1)) == {"task": -0.5}  # -1 + 0.25 * 2
