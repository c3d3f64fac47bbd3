from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.mixture import MixtureSampler, quotas

CATEGORIES = ["a"] * 10 + ["b"] * 50 + ["c"] * 40
WEIGHTS = {"a": 0.5, "b": 0.5, "c": 0.0}


def test_each_category_has_its_share_of_every_epoch_and_one_of_weight_0_has_none() -> None:
    sampler = MixtureSampler(CATEGORIES, weights=WEIGHTS, seed=0)
    for epoch in range(3):
        drawn = Counter(CATEGORIES[sampler.row(epoch * 100 + place)] for place in range(100))
        assert drawn == {"a": 50, "b": 50}


def test_no_row_comes_again_before_all_of_its_category_came() -> None:
    sampler = MixtureSampler(CATEGORIES, weights=WEIGHTS, seed=0)
    counts = Counter(sampler.row(n) for n in range(300))
    # 150 draws of 10 rows and 150 draws of 50 rows
    assert {counts[row] for row in range(10)} == {15}
    assert {counts[row] for row in range(10, 60)} == {3}


def test_the_ordinal_is_the_whole_state() -> None:
    sampler = MixtureSampler(CATEGORIES, weights=WEIGHTS, seed=3)
    rows = [sampler.row(n) for n in range(250)]
    assert [MixtureSampler(CATEGORIES, weights=WEIGHTS, seed=3).row(n) for n in range(0, 250, 50)] == rows[::50]
    assert sampler.id(205) == "2/000005"
    assert sampler.ordinal("2/000005~1") == 205


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=9), st.integers(1, 500))
def test_quotas_add_up_and_are_off_by_less_than_one(weights: list[float], total: int) -> None:
    found = quotas(weights, total)
    assert sum(found) == total
    assert all(abs(q - w / sum(weights) * total) < 1 + 1e-9 for q, w in zip(found, weights, strict=True))


def test_largest_remainders_decide() -> None:
    assert quotas([1, 1, 1], 100) == [34, 33, 33]
    assert quotas([0.4, 0.6], 1) == pytest.approx([0, 1])
