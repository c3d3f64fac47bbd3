import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.pool import Pool
from services.filter.sampling.posterior import Evidence
from services.filter.sampling.prompts import Prompts
from services.filter.sampling.state import SamplerState

ONE = np.zeros(4, dtype=np.int32)


def make_pool(*known: Evidence, categories: np.ndarray = ONE, epoch: int = 0, out: list[int] | None = None) -> Pool:
    prompts = Prompts(SamplerState(), len(categories))
    for row, evidence in enumerate(known):
        prompts.learn(row, evidence)
        if evidence.attempts:
            prompts.postpone(row, 1)  # it was visited in epoch 0
    pool = Pool(prompts, categories, group_size=8)
    pool.begin(epoch, out or [])
    return pool


def drawn(pool: Pool, category: int = 0, number: int = 4000) -> dict[int | None, float]:
    rng = random.Random(0)
    counts = Counter(pool.draw(category, rng) for _ in range(number))
    return {row: count / number for row, count in counts.items()}


def test_prompts_whose_groups_are_likely_to_be_kept_are_drawn_more_often() -> None:
    # 4 of 8 right, all 32 wrong, 1 of 8 right, never seen
    shares = drawn(make_pool(Evidence(8, 4), Evidence(32, 0), Evidence(8, 1), Evidence()))
    assert shares[0] > 2 * shares[2]
    assert shares[0] > 2 * shares[3] > 4 * shares.get(1, 0.0)


def test_a_prompt_that_seems_hopeless_is_tried_now_and_then() -> None:
    assert 0 < drawn(make_pool(*[Evidence(8, 4)] * 3, Evidence(8, 0)))[3] < 0.15


def test_a_prompt_that_is_out_is_not_drawn_until_it_comes_back() -> None:
    pool = make_pool(out=[2])
    assert 2 not in drawn(pool, number=500)
    pool.take(1)
    pool.take(1)  # an epoch began meanwhile, and it was its turn again
    pool.put_back(1)
    assert set(drawn(pool, number=500)) == {0, 3}
    pool.put_back(1)
    pool.put_back(2)
    assert set(drawn(pool, number=500)) == {0, 1, 2, 3}


def test_a_solved_prompt_rests_for_the_epoch_and_returns_in_the_next() -> None:
    solved = Evidence(8, 8)
    assert 0 not in drawn(make_pool(solved), number=500)
    assert drawn(make_pool(solved, epoch=1))[0] > 0


def test_a_category_of_which_all_is_out_has_nothing_to_draw() -> None:
    pool = make_pool(out=[0, 1, 2, 3])
    assert set(drawn(pool, number=10)) == {None}
    assert pool.any_of(0, random.Random(0)) in range(4)


def test_only_rows_of_the_category_are_drawn() -> None:
    pool = make_pool(categories=np.asarray([1, 0, 1, 0], dtype=np.int32))
    assert set(drawn(pool, 0, number=200)) == {1, 3}
    assert set(drawn(pool, 1, number=200)) == {0, 2}


changes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.floats(0, 64), st.floats(0, 1)), max_size=60)


@given(changes, st.integers(2, 16))
def test_a_pool_that_was_changed_is_the_pool_built_anew_to_the_last_bit(
    changes: list[tuple[int, int, float, float]], group_size: int
) -> None:
    prompts = Prompts(SamplerState(), 6)
    categories = np.asarray([0, 1, 0, 2, 1, 0], dtype=np.int32)
    pool, out = Pool(prompts, categories, group_size=group_size), Counter[int]()
    pool.begin(1, [])
    for at, (row, kind, attempts, share) in enumerate(changes):
        if kind == 0:
            pool.take(row)
            out[row] += 1
        elif kind == 1 and out[row]:
            pool.put_back(row)
            out[row] -= 1
        elif kind > 1:
            prompts.learn(row, Evidence(attempts, attempts * share, at))
            prompts.postpone(row, kind - 1)
            pool.refresh(row)
    anew = Pool(prompts, categories, group_size=group_size)
    anew.begin(1, list(out.elements()))
    assert [tree._nodes for tree in pool._trees] == [tree._nodes for tree in anew._trees]
