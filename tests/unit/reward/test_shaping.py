import pytest

from common.messages import Sample, Span, Verdict
from services.reward.shaping import Shaping, overlong_penalty


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
