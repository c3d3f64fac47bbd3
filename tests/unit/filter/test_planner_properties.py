"""What holds for every timing: simulated rollouts, learner, deaths and restarts around the real planner.

`World` checks after every commit that the account is exact and that every batch leaves only groups that can still meet
their deadline; these tests say what holds at the end.
"""

import contextlib
import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.filter import admission, planner
from services.filter.admission import Ledger
from services.filter.planner import Planner
from tests.unit.filter.simulation import Model, World

worlds = st.fixed_dictionaries({
    "seed": st.integers(0, 2**32),
    "steps": st.integers(1, 10),
    "groups_per_batch": st.integers(1, 8),
    "max_staleness": st.integers(0, 8),
    "workers": st.integers(1, 64),
    "drop_rate": st.floats(0, 0.7),
    "restart_rate": st.sampled_from([0.0, 0.02, 0.3]),
    "death_rate": st.sampled_from([0.0, 0.02, 0.3]),
})  # fmt: skip


@given(worlds)
def test_no_group_is_trained_too_old_none_is_dropped_for_age_and_the_run_ends(settings: dict[str, Any]) -> None:
    world = World(**settings)
    state = world.simulate()  # raises on a deadlock, a wrong account or a batch that closes too early
    assert len(world.ages) == world.steps * world.groups_per_batch == state.trained
    assert max(world.ages) <= world.max_staleness
    assert set(state.dropped) <= {"all_wrong", "dead"}
    assert state.num_outstanding == 0  # nothing was issued that no step needed


@given(worlds, st.sampled_from(["drop", "mask"]))
def test_the_other_policies_train_nothing_too_old_either_and_the_run_ends(
    settings: dict[str, Any], policy: str
) -> None:
    world = World(**settings, on_stale=policy)
    state = world.simulate()
    assert state.trained == world.steps * world.groups_per_batch
    assert max(world.ages) <= world.max_staleness


@given(worlds, st.integers(1, 2**32))
def test_with_staleness_0_the_batches_do_not_depend_on_the_timing(settings: dict[str, Any], timing: int) -> None:
    # which prompts become dead letters does depend on it, so nobody dies
    settings |= {"max_staleness": 0, "death_rate": 0.0}
    first, second = World(**settings), World(**(settings | {"timing": timing, "workers": 3, "restart_rate": 0.1}))
    first.simulate()
    second.simulate()
    assert first.model.batches == second.model.batches


@given(worlds, st.sampled_from(["signal", "gradient_variance"]), st.sampled_from(["wait", "drop"]))
def test_an_adaptive_sampler_changes_no_promise_and_accounts_for_every_draw(
    settings: dict[str, Any], sampling: str, policy: str
) -> None:
    world = World(**settings, sampling=sampling, on_stale=policy)
    state = world.simulate()
    assert state.trained == world.steps * world.groups_per_batch
    assert max(world.ages) <= world.max_staleness
    # every prompt ended, so none is remembered as being out but those that wait to be issued again
    assert len(state.sampler.drawn) == len(state.reissue) + state.num_outstanding
    record = [json.loads(line) for line in [*world.record, *state.sampler.finished]]
    assert [row["step"] for row in record] == list(range(world.steps))
    # a prompt that was issued again after it turned stale was drawn once
    assert sum(c["draws"] for row in record for c in row["categories"].values()) == state.next_ordinal


def violations(runs: int, **settings: Any) -> int:
    """Worlds in which a property fails."""
    found = 0
    for seed in range(runs):
        fixed = {"seed": seed, "steps": 8, "groups_per_batch": 3, "max_staleness": seed % 3, "workers": 16}
        world = World(**(fixed | {"drop_rate": 0.5} | settings))
        held = False
        with contextlib.suppress(AssertionError):
            state = world.simulate()
            held = "stale" not in state.dropped and max(world.ages) <= world.max_staleness
        found += not held
    return found


def test_the_rules_as_they_are_have_no_violation() -> None:
    assert violations(60) == 0


def count_age_at_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of D21: a group in flight has no age yet, and gets the version of the moment at which it comes back."""
    rule, seen = planner.chosen_batch, dict[str, int]()

    def wrong(outstanding: Mapping[str, int], accepted: Collection[str], order: Any, **limits: Any) -> Any:
        step = limits["step"]
        if step == 0:  # another world: its ids are the same
            seen.clear()
        ages = {group: seen.setdefault(group, step) if group in accepted else step for group in outstanding}
        return rule(ages, accepted, order, **limits)

    monkeypatch.setattr(planner, "chosen_batch", wrong)


def test_an_age_counted_at_completion_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    count_age_at_completion(monkeypatch)
    assert violations(60) > 0


def test_an_age_counted_at_completion_breaks_wait_even_if_nobody_checks_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # without the model's check of each batch, the check of real ages must drop what the wrong rule left too long
    count_age_at_completion(monkeypatch)
    monkeypatch.setattr(Model, "check", lambda *_: None)
    assert violations(60) > 0
    # and without that one too, tokens older than eta are trained
    monkeypatch.setattr(Planner, "_drop_stale", lambda self: None)
    worlds = [World(seed=n, steps=8, groups_per_batch=3, max_staleness=1, workers=16, drop_rate=0.5) for n in range(20)]
    for world in worlds:
        world.simulate()
    assert max(age for world in worlds for age in world.ages) > 1


class NeverFreed(Ledger):
    """A dropped group keeps its place."""

    @property
    def room(self) -> int:
        return max(0, super().room - self.state.num_dropped)


def test_a_place_that_is_not_freed_by_a_drop_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "Ledger", NeverFreed)
    assert violations(20) > 0


class FreedTwice(Ledger):
    """A dropped group makes room for two."""

    @property
    def room(self) -> int:
        return super().room + self.state.num_dropped


def test_a_place_that_is_freed_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "Ledger", FreedTwice)
    assert violations(20) > 0


def test_closing_batches_without_looking_at_deadlines_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = planner.chosen_batch
    monkeypatch.setattr(planner, "chosen_batch", lambda *args, **kwargs: rule(*args, **(kwargs | {"wait": False})))
    assert violations(60) > 0


def test_admitting_one_batch_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = admission.admissible
    monkeypatch.setattr(
        admission, "admissible", lambda **kwargs: rule(**(kwargs | {"max_staleness": kwargs["max_staleness"] + 1}))
    )
    assert violations(60) > 0
