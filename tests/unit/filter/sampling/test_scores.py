import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.scores import cumulative, normalised, probabilities, softmax, winsorised, with_least_share
from services.filter.sampling.state import Monitored


def watched(*, reward_variance: float | None = None, gradient_variance: float | None = None) -> Monitored:
    monitored = Monitored()
    if reward_variance is not None:
        monitored.reward_variance.add(reward_variance, 0.9)
    if gradient_variance is not None:
        monitored.gradient_variance.add(gradient_variance, 0.9)
    return monitored


def shares(kind: str, *monitored: Monitored, temperature: float = 0.5, settle: bool = False) -> list[float]:
    found = probabilities(kind, monitored, temperature=temperature, settle=settle, weights=[1.0, 3.0])
    return [float(share) for share in found]


def test_the_more_a_category_s_rewards_vary_the_oftener_it_is_drawn() -> None:
    # s = 1 and 0.5: e^(1/0.5) : e^(0.5/0.5) = e : 1
    high, low = shares("signal", watched(reward_variance=0.2), watched(reward_variance=0.1))
    assert high / low == pytest.approx(np.e)


def test_the_article_prefers_steady_gradients_and_the_other_option_strong_ones() -> None:
    steady, strong = watched(gradient_variance=1.0), watched(gradient_variance=4.0)
    # 1/var: s = 1 and 0.25; var: s = 0.25 and 1
    assert np.divide(*shares("gradient_variance", steady, strong)) == pytest.approx(np.exp(0.75 / 0.5), rel=1e-6)
    assert np.divide(*shares("high_gradient_variance", strong, steady)) == pytest.approx(np.exp(0.75 / 0.5))


def test_a_category_of_which_nothing_is_known_is_tried_like_the_best() -> None:
    assert normalised([0.1, None, 0.2]).tolist() == [0.5, 1.0, 1.0]
    assert normalised([None, None]).tolist() == [1.0, 1.0]
    assert normalised([0.0, 0.0]).tolist() == [1.0, 1.0]  # nothing varies anywhere: no preference


def test_given_weights_are_the_shares() -> None:
    assert shares("weights", Monitored(), Monitored()) == [0.25, 0.75]


def test_in_the_last_stage_an_outlier_is_drawn_in() -> None:
    scores = np.asarray([0.1] * 10 + [1.0])
    assert winsorised(scores).max() == pytest.approx(0.1)
    monitored = [watched(reward_variance=float(s)) for s in scores]
    wild, damped = (shares("signal", *monitored, temperature=0.1, settle=settle)[-1] for settle in (False, True))
    assert wild > 0.99
    assert damped == pytest.approx(1 / 11)


def test_a_lower_temperature_follows_the_scores_more_closely() -> None:
    scores = np.asarray([0.2, 1.0])
    assert softmax(scores, 0.1)[1] > softmax(scores, 0.4)[1] > 0.5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50).filter(any))
def test_no_category_falls_below_its_least_share(given: list[float]) -> None:
    found = with_least_share(np.asarray(given) / sum(given))
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0.01 / len(given) * (1 - 1e-12)


def test_what_is_above_the_least_share_keeps_its_proportions() -> None:
    found = with_least_share(np.asarray([0.0, 0.25, 0.75]))
    assert found[0] == pytest.approx(0.01 / 3)
    assert found[2] / found[1] == pytest.approx(3.0)


def test_the_running_sums_end_at_exactly_one() -> None:
    assert cumulative(dict.fromkeys("abc", 0.3)) == [0.3, 0.6, 1.0]
