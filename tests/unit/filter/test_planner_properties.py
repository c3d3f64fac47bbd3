"""What holds for every timing: simulated rollouts, learner and restarts around the real planner."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.filter import planner
from services.filter.state import FilterState
from tests.unit.filter.simulation import World

worlds = st.fixed_dictionaries({
    "seed": st.integers(0, 2**32),
    "steps": st.integers(1, 10),
    "groups_per_batch": st.integers(1, 8),
    "max_staleness": st.integers(0, 8),
    "workers": st.integers(1, 64),
    "drop_rate": st.floats(0, 0.7),
})  # fmt: skip


@given(worlds)
def test_no_group_is_trained_too_old_none_is_dropped_for_age_and_the_run_ends(settings: dict[str, Any]) -> None:
    world = World(**settings)
    state = world.simulate()  # raises on a deadlock
    assert max(world.ages) <= world.max_staleness
    assert "stale" not in state.dropped
    assert [len(batch) for batch in world.batches] == [world.groups_per_batch] * world.steps


@given(worlds)
def test_every_issued_group_has_one_fate_and_none_is_trained_twice(settings: dict[str, Any]) -> None:
    world = World(**settings)
    state = world.simulate()
    trained = [group for batch in world.batches for group in batch]
    assert len(trained) == len(set(trained)) == state.trained
    assert state.issued == state.trained + sum(state.dropped.values()) + len(state.outstanding)


@given(worlds, st.integers(0, 2**32))
def test_with_staleness_0_the_batches_do_not_depend_on_the_timing(settings: dict[str, Any], seed: int) -> None:
    # which groups are dropped must not depend on the timing either, so none is
    settings |= {"max_staleness": 0, "drop_rate": 0.0}
    first, second = World(**settings), World(**(settings | {"seed": seed, "workers": 3}))
    first.simulate()
    second.simulate()
    assert first.batches == second.batches


@given(worlds, st.sampled_from(["drop", "mask"]))
def test_the_other_policies_never_train_too_old_and_never_deadlock(settings: dict[str, Any], policy: str) -> None:
    world = World(**settings, on_stale=policy)
    state = world.simulate()
    assert max(world.ages) <= world.max_staleness  # one version a group here, so masking saves none
    assert state.issued == state.trained + sum(state.dropped.values()) + len(state.outstanding)


def _violations(runs: int) -> int:
    """Worlds in which a property fails."""
    found = 0
    for seed in range(runs):
        world = World(seed=seed, steps=8, groups_per_batch=3, max_staleness=seed % 3, workers=16, drop_rate=0.5)
        try:
            state = world.simulate()
            found += "stale" in state.dropped or max(world.ages) > world.max_staleness
        except AssertionError:
            found += 1
    return found


def test_the_rules_as_they_are_have_no_violation() -> None:
    assert _violations(60) == 0


def test_closing_batches_without_looking_at_deadlines_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = planner.chosen_batch
    monkeypatch.setattr(planner, "chosen_batch", lambda *args, **kwargs: rule(*args, **(kwargs | {"wait": False})))
    assert _violations(60) > 0


def test_admitting_one_batch_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = planner.admissible
    wrong = lambda **kwargs: rule(**(kwargs | {"max_staleness": kwargs["max_staleness"] + 1}))  # noqa: E731
    monkeypatch.setattr(planner, "admissible", wrong)
    assert _violations(60) > 0


def test_a_place_that_is_not_freed_by_a_drop_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = planner.admissible
    dropped: list[FilterState] = []

    def wrong(*, num_outstanding: int, groups_per_batch: int, max_staleness: int) -> int:
        lost = sum(dropped[-1].dropped.values()) if dropped else 0
        return rule(
            num_outstanding=num_outstanding + lost, groups_per_batch=groups_per_batch, max_staleness=max_staleness
        )

    plan = planner.Planner.plan

    def watched(self: planner.Planner, room: int) -> planner.Transaction:
        dropped.append(self.state)
        return plan(self, room)

    monkeypatch.setattr(planner, "admissible", wrong)
    monkeypatch.setattr(planner.Planner, "plan", watched)
    assert _violations(20) > 0
