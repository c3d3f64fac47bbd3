import numpy as np
import pytest

from services.learner.advantage import advantages


def test_two_rewards_are_one_deviation_from_their_mean() -> None:
    # mean 2, population deviation 1: (1 - 2) / (1 + 1e-6) = -0.999999
    assert advantages([1.0, 3.0]) == pytest.approx([-1.0, 1.0], abs=2e-6)


def test_equal_rewards_have_advantage_exactly_zero() -> None:
    assert advantages([0.7, 0.7, 0.7]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rewards", [[0.1 + 0.2, 0.3, 0.3], [1.0, 1.0, 1.000000001]])
def test_the_residue_of_float_sums_is_not_blown_up(rewards: list[float]) -> None:
    assert advantages(rewards).tolist() == [0.0, 0.0, 0.0]


def test_a_single_survivor_has_nothing_to_be_compared_with() -> None:
    assert advantages([1.0]).tolist() == [0.0]


def test_without_the_deviation_rewards_are_only_centred() -> None:
    assert advantages([1.0, -1.0, -1.0, -1.0], "mean") == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    # 1 - mean(-1, -1, -1) = 2;  -1 - mean(1, -1, -1) = -2/3
    assert advantages([1.0, -1.0, -1.0, -1.0], "leave_one_out") == pytest.approx([2.0, -2 / 3, -2 / 3, -2 / 3])


def test_advantages_sum_to_zero_and_do_not_depend_on_the_order() -> None:
    rewards = np.random.default_rng(0).normal(size=16)
    order = np.random.default_rng(1).permutation(16)
    assert advantages(rewards.tolist()).sum() == pytest.approx(0.0, abs=1e-9)
    assert advantages(rewards[order].tolist()) == pytest.approx(advantages(rewards.tolist())[order])
