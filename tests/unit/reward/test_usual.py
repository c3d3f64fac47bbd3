import random

from hypothesis import given
from hypothesis import strategies as st

from services.reward.usual import LEAST_S, MOST_S, Usual


def test_nearly_all_answers_stay_below_what_was_learnt() -> None:
    rng, usual = random.Random(0), Usual()
    for _ in range(20_000):
        usual.learn("math", rng.lognormvariate(-4.0, 0.5))
    above = sum(rng.lognormvariate(-4.0, 0.5) > usual.seconds("math") for _ in range(20_000))
    assert 0.005 < above / 20_000 < 0.08


def test_verifiers_do_not_teach_each_other() -> None:
    usual = Usual()
    before_s = usual.seconds("exact")
    for _ in range(100):
        usual.learn("math", 0.3)
    assert usual.seconds("math") > 2 * before_s
    assert usual.seconds("exact") == before_s


@given(st.lists(st.floats(0, 1e6), max_size=300))
def test_the_estimate_keeps_its_bounds(seconds: list[float]) -> None:
    usual = Usual()
    for s in seconds:
        usual.learn("math", s)
        assert LEAST_S <= usual.seconds("math") <= MOST_S
