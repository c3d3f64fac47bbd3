import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.posterior import Evidence, expected_keep, is_solved, keep, updated


def test_the_chance_that_a_group_is_kept_is_that_its_answers_are_not_all_alike() -> None:
    # G = 2: one right and one wrong, 2 q (1 - q)
    assert keep(0.3, 2) == pytest.approx(2 * 0.3 * 0.7)
    assert keep(0.0, 8) == keep(1.0, 8) == 0.0
    assert keep(0.5, 4) == pytest.approx(1 - 2 / 16)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (8.5, 0.5), (3.0, 4.0)])
def test_the_expected_chance_is_the_integral_over_the_posterior(a: float, b: float) -> None:
    qs = np.random.default_rng(0).beta(a, b, size=400_000)
    assert expected_keep(a, b, 8) == pytest.approx(np.mean([1 - qs**8 - (1 - qs) ** 8]), abs=0.003)


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.integers(2, 64))
def test_numbers_and_arrays_agree_to_the_last_bit(successes: float, failures: float, group_size: int) -> None:
    a, b = 0.5 + successes, 0.5 + failures
    assert expected_keep(np.asarray([a]), np.asarray([b]), group_size)[0] == expected_keep(a, b, group_size)


@given(st.integers(2, 128))
def test_a_prompt_is_solved_by_a_group_all_right_and_by_nothing_less(group_size: int) -> None:
    def solved(right: int, of: int) -> bool:
        a, b = Evidence(of, right).beta
        return bool(is_solved(a, b, expected_keep(a, b, group_size)))

    assert solved(group_size, group_size)
    assert not solved(0, group_size)  # hopeless is not solved
    assert not solved(0, 0)
    assert group_size < 4 or not solved(group_size - 1, group_size)


def test_evidence_fades_with_the_versions_that_passed() -> None:
    # 8 answers, 6 right, at version 3; at version 5 half of a half of it is left, and 8 wrong ones are added
    evidence = updated(Evidence(8.0, 6.0, 3), attempts=8, successes=0.0, version=5, decay=0.5)
    assert evidence == (2.0 + 8, 1.5, 5)
    assert evidence.beta == (2.0, 9.0)


def test_a_version_said_twice_fades_nothing() -> None:
    assert updated(Evidence(8.0, 6.0, 3), attempts=2, successes=1.0, version=3, decay=0.5) == (10.0, 7.0, 3)
