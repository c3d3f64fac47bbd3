from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.filter.ages import admissible, chosen_batch, earliest_first, may_close


def test_admission_counts_everything_that_is_not_yet_trained() -> None:
    assert admissible(num_outstanding=5, groups_per_batch=2, max_staleness=2) == 1  # (2 + 1) * 2 - 5
    assert admissible(num_outstanding=9, groups_per_batch=2, max_staleness=2) == 0


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(0, 12), st.integers(1, 5), st.integers(0, 6))
def test_may_close_is_the_condition_written_out_for_every_step(
    left: list[int], step: int, groups_per_batch: int, max_staleness: int
) -> None:
    deadlines = Counter(s + max_staleness for s in left)
    brute = all(
        sum(count for deadline, count in deadlines.items() if deadline <= j) <= (j - step) * groups_per_batch
        for j in range(step, 40)
    )
    got = may_close(left, step=step, groups_per_batch=groups_per_batch, max_staleness=max_staleness)
    assert got == brute


def test_the_earliest_deadline_goes_first_then_the_earliest_issued() -> None:
    assert earliest_first({"a": 3, "b": 1, "c": 1}, {"a": 0, "b": 2, "c": 1}, 2) == ["c", "b"]


def test_a_batch_waits_for_a_group_that_is_due_now() -> None:
    # eta 1, step 1: the group with s = 0 is due and not back yet, although two others are ready
    outstanding = {"due": 0, "x": 1, "y": 1}
    order = {"due": 0, "x": 1, "y": 2}
    arguments = {"step": 1, "groups_per_batch": 2, "max_staleness": 1}
    assert chosen_batch(outstanding, {"x", "y"}, order, **arguments, wait=True) is None
    assert chosen_batch(outstanding, {"x", "y"}, order, **arguments, wait=False) == ["x", "y"]
    assert chosen_batch(outstanding, {"due", "x", "y"}, order, **arguments, wait=True) == ["due", "x"]
