import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.messages import ChatMessage, Prompt, Sampling, Task
from services.filter.sampling.monitor import Outcome, judged, moments
from services.filter.sampling.state import Average, Monitored
from tests.unit.filter.makers import make_scored


def prompt() -> Prompt:
    return Prompt(
        id="0/000000", row=0, chat=[ChatMessage(role="user", content="?")], task=Task(verifier="math", gold="1"),
        sampling=Sampling(n=4, temperature=1.0, max_tokens=9, seed=0), min_version=0,
    )  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_one_pass_gives_mean_and_variance(values: list[float]) -> None:
    count, mean, variance = moments(iter(values))
    assert count == len(values)
    assert mean == pytest.approx(np.mean(values), abs=1e-6)
    assert variance == pytest.approx(np.var(values), rel=1e-6, abs=1e-3)


def test_one_pass_keeps_the_variance_of_large_numbers_that_differ_little() -> None:
    # sum of squares minus square of the sum would lose it: 1e9^2 has no digits left for 1
    assert moments([1e9, 1e9 + 1, 1e9 + 2])[2] == pytest.approx(2 / 3)
    assert moments([])[0] == 0


def test_a_failed_verifier_is_no_attempt() -> None:
    outcome = Outcome(make_scored(prompt(), versions=[0, 0, 0], accuracies=(1, 0, 0, None)))
    # q = 1/3, variance q (1 - q) = 2/9, three tokens each
    assert (outcome.attempts, outcome.length) == (3, 3.0)
    assert (outcome.successes, outcome.variance) == (pytest.approx(1.0), pytest.approx(2 / 9))


def test_a_group_without_a_verdict_teaches_the_monitor_nothing() -> None:
    monitored = Monitored()
    judged(monitored, Outcome(make_scored(prompt(), versions=[0], accuracies=(None, None))), 0.9)
    assert monitored == Monitored()


def test_an_average_is_not_biased_towards_its_start() -> None:
    average = Average()
    assert average.value is None
    for _ in range(3):
        average.add(5.0, 0.99)
    assert average.value == pytest.approx(5.0)
    average.add(6.0, 0.5)
    # weights 1 - 0.99^3 = 0.0297 halved, and 0.5
    assert average.value == pytest.approx((0.5 * 0.029701 * 5 + 0.5 * 6) / (0.5 * 0.029701 + 0.5))


def test_half_solved_and_half_hopeless_prompts_make_a_category_without_signal() -> None:
    # its pass rate is 1/2, the best there is, yet no group of it is ever kept
    monitored = Monitored()
    for accuracy in (0, 1) * 10:
        judged(monitored, Outcome(make_scored(prompt(), versions=[0], accuracies=(accuracy,) * 4)), 0.9)
    assert monitored.pass_rate.value is not None
    assert math.isclose(monitored.pass_rate.value, 0.5, abs_tol=0.1)
    assert monitored.reward_variance.value == 0.0
