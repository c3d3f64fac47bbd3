"""The real services with scripted stage times (benchmarks/scripted.py), and what the benchmark says of them."""

from pathlib import Path

import pytest

from benchmarks.pipeline import figures, knee, predicted, synchronous
from benchmarks.scripted import Script, run

FAST = Script(token_s=0.004, verify_s=0.002, step_s=0.1)
"""A usual group takes 0.04 s, one in ten 0.8 s."""


async def test_when_one_prompt_in_ten_takes_20_times_longer_none_is_dropped_and_none_is_favoured(
    tmp_path: Path,
) -> None:
    outcome = await run(FAST, tmp_path, steps=15, limit_s=120, max_staleness=2)
    found = figures(FAST, outcome, steps=15, eta=2)
    assert found["greatest_age"] <= 2
    assert (found["stale"], found["same_groups"], found["ks_distance"]) == (0, True, 0.0)
    assert len(outcome.trained) == 15 * FAST.groups_per_batch
    assert 0 < found["efficiency"] <= 1.1


async def test_dropping_by_age_trains_fewer_of_the_long_answers(tmp_path: Path) -> None:
    outcome = await run(FAST, tmp_path, steps=15, limit_s=120, max_staleness=2, on_stale="drop")
    found = figures(FAST, outcome, steps=15, eta=2)
    assert found["greatest_age"] <= 2
    assert found["stale"] > 0
    longest = [max(FAST.lengths(name)) for name in outcome.trained]
    assert sum(length > FAST.tokens for length in longest) / len(longest) < FAST.slow_share / 2


def test_the_knee_is_the_least_staleness_that_covers_the_slowest_answer() -> None:
    # T_slow 20 * 10 * 0.02 = 4 s, verification 0.01 s, step 0.6 s; ideal 1 / 0.6 = 1.667 steps a second (learner)
    # (eta + 1) / 4.61 >= 1.667  <=>  eta + 1 >= 7.68
    script = Script()
    assert script.ideal == pytest.approx(1 / 0.6)
    assert knee(script) == 7
    assert predicted(script, 1) == pytest.approx(2 / 4.61)


def test_a_synchronous_loop_waits_for_every_slow_answer() -> None:
    # about 32 groups a round: nearly every round has a slow one, 3.6 s or more, and a batch needs two rounds on average
    assert 1 / 12 < synchronous(Script(), steps=50) < 1 / 4
