import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.tree import SumTree

weights = st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(any)


@given(weights, st.floats(0, 1, exclude_max=True))
def test_the_leaf_found_is_the_one_at_which_the_running_sum_passes_the_share(given: list[float], share: float) -> None:
    tree = SumTree(np.asarray(given))
    leaf = tree.find(share)
    before, passed = sum(given[:leaf]), sum(given[: leaf + 1])
    assert before - 1e-6 * sum(given) <= share * sum(given) <= passed + 1e-6 * sum(given)
    assert tree[leaf] > 0.0


@given(weights, st.data())
def test_a_changed_tree_is_the_tree_built_anew_to_the_last_bit(given: list[float], data: st.DataObject) -> None:
    tree = SumTree(np.asarray(given))
    for _ in range(10):
        leaf = data.draw(st.integers(0, len(given) - 1))
        given[leaf] = data.draw(st.floats(0, 1e6))
        tree[leaf] = given[leaf]
    assert tree._nodes == SumTree(np.asarray(given))._nodes


def test_leaves_are_drawn_in_proportion_to_their_weights() -> None:
    tree, rng = SumTree(np.asarray([1.0, 0.0, 3.0, 6.0, 0.0])), random.Random(0)
    counts = Counter(tree.find(rng.random()) for _ in range(20_000))
    assert {leaf: counts[leaf] / 20_000 for leaf in counts} == pytest.approx({0: 0.1, 2: 0.3, 3: 0.6}, abs=0.015)


def test_a_tree_of_one_leaf_draws_it() -> None:
    assert SumTree(np.asarray([2.0])).find(0.7) == 0
