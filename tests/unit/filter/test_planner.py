import random

import pytest

from common import codec
from common.errors import UserError
from common.messages import BATCHES, PROMPTS, Batch, Feedback, Group, Prompt, Sample, Scored, Span, Verdict
from services.filter.planner import Planner, Transaction
from services.filter.state import FilterState, dumps, loads
from tests.unit.filter import makers
from tests.unit.filter.makers import make_run, make_scored

FRAMES = [b"", b"", b""]


def make_planner(state: FilterState | None = None, *, held_out: int = 0, cap: int = 0, **changes: object) -> Planner:
    run = make_run(**({"steps": 4, "groups_per_batch": 2, "max_staleness": 0} | changes))
    return makers.make_planner(
        state or FilterState(), run, held_out=held_out, eval_every=2, max_dropped_in_a_row=cap
    )  # fmt: skip


def prompts(transaction: Transaction, kind: str = "train") -> list[Prompt]:
    decoded = [codec.decode(Prompt, item.frames) for item in transaction.items if item.queue == PROMPTS]
    return [prompt for prompt in decoded if prompt.kind == kind]


def batches(transaction: Transaction) -> list[Batch]:
    return [codec.decode(Batch, item.frames) for item in transaction.items if item.queue == BATCHES]


def names(batch: Batch) -> list[str]:
    return [scored.group.prompt.id for scored in batch.groups]


def feed(planner: Planner, prompt: Prompt, *, kept: bool = True, version: int | None = None, lease: int = 1) -> None:
    versions = [prompt.min_version if version is None else version]
    planner.on_scored(lease, make_scored(prompt, versions=versions, accuracies=(1, 0) if kept else (1, 1)), FRAMES)


def test_no_more_prompts_are_issued_than_the_bound_allows() -> None:
    # (eta + 1) B = 2 at eta 0 and 6 at eta 2, whatever the room
    assert len(prompts(make_planner().plan(100))) == 2
    assert len(prompts(make_planner(max_staleness=2).plan(100))) == 6


def test_no_more_prompts_are_issued_than_waiting_rollouts_want() -> None:
    assert len(prompts(make_planner(max_staleness=2).plan(3))) == 3


def test_no_more_prompts_are_issued_than_the_remaining_steps_need() -> None:
    # one step of two groups is left, so two prompts although the bound allows eight
    assert len(prompts(make_planner(steps=1, max_staleness=3).plan(100))) == 2


def test_a_prompt_says_when_and_how_it_is_to_be_sampled() -> None:
    first, second = prompts(make_planner(temperature=0.7, max_response_tokens=9).plan(2, now=12.5))
    assert (first.id, first.kind, first.min_version, first.issued_at) == ("0/000000", "train", 0, 12.5)
    assert (first.sampling.n, first.sampling.temperature, first.sampling.max_tokens) == (2, 0.7, 9)
    assert first.sampling.seed != second.sampling.seed


def test_a_dropped_group_is_replaced_at_once_and_exactly() -> None:
    planner = make_planner()
    first, second = prompts(planner.plan(9))
    feed(planner, first, kept=False, lease=7)
    transaction = planner.plan(9)
    assert transaction.settles == [7]
    assert len(prompts(transaction)) == 1
    assert planner.state.dropped == {"all_correct": 1}
    assert set(planner.state.outstanding) == {second.id, prompts(transaction)[0].id}


def test_a_batch_closes_with_its_groups_in_order_of_issue_and_settles_them() -> None:
    planner = make_planner()
    first, second = prompts(planner.plan(9))
    feed(planner, second, lease=12)
    assert not planner.plan(9)  # the accepted group stays leased until its batch closes
    feed(planner, first, lease=11)
    transaction = planner.plan(9)
    (batch,) = batches(transaction)
    assert names(batch) == [first.id, second.id]
    assert sorted(transaction.settles) == [11, 12]
    assert transaction.ages == [0, 0]
    assert (batch.totals["issued"], batch.totals["outstanding"], batch.totals["keep_rate"]) == (2, 2, 1)


def test_what_is_accepted_beyond_a_batch_waits_for_the_next_one() -> None:
    planner = make_planner(max_staleness=1)
    issued = prompts(planner.plan(9))
    for lease, prompt in enumerate(issued[:3]):
        feed(planner, prompt, lease=lease)
    (batch,) = batches(planner.plan(9))
    assert names(batch) == [issued[0].id, issued[1].id]
    feed(planner, issued[3], lease=3)
    (ahead,) = batches(planner.plan(9))  # assembled while step 0 trains
    assert (ahead.step, names(ahead)) == (1, [issued[2].id, issued[3].id])


def test_no_batch_is_closed_beyond_the_last_step() -> None:
    planner = make_planner(FilterState(next_step=4, version=3, outstanding={"0/000000": 0}, issued=1), max_staleness=9)
    assert batches(planner.plan(9)) == []


def test_a_group_is_found_by_its_id_whatever_the_order_of_arrival() -> None:
    # D13: the same batch, byte for byte, however its rows are shuffled
    closed = set()
    for seed in range(20):
        planner = make_planner(groups_per_batch=6)
        arrivals = list(enumerate(prompts(planner.plan(9))))
        random.Random(seed).shuffle(arrivals)
        for lease, prompt in arrivals:
            feed(planner, prompt, lease=lease)
        (item,) = planner.plan(0).items
        closed.add(tuple(item.frames))
    assert len(closed) == 1


def test_the_next_prompts_are_issued_when_the_step_is_trained_and_carry_its_version() -> None:
    planner = make_planner()
    for lease, prompt in enumerate(prompts(planner.plan(9))):
        feed(planner, prompt, lease=lease)
    assert prompts(planner.plan(9)) == []
    planner.on_feedback(5, Feedback(step=0, version=1, groups=[]))
    transaction = planner.plan(9)
    assert [prompt.min_version for prompt in prompts(transaction)] == [1, 1]
    assert planner.state.trained == 2


def test_a_repeated_feedback_changes_nothing() -> None:
    planner = make_planner()
    for prompt in prompts(planner.plan(9)):
        feed(planner, prompt)
    planner.plan(9)
    for _ in range(2):
        planner.on_feedback(5, Feedback(step=0, version=1, groups=[]))
    assert planner.plan(9).settles == [5, 5]
    assert planner.state.trained == 2


def test_a_group_that_was_decided_before_is_settled_without_effect() -> None:
    planner = make_planner()
    first, _ = prompts(planner.plan(9))
    feed(planner, first, kept=False)
    planner.plan(0)
    feed(planner, first, kept=False, lease=8)
    assert planner.plan(0).settles == [8]
    assert planner.state.dropped == {"all_correct": 1}


def test_a_group_that_comes_again_under_a_new_lease_is_settled_under_that() -> None:
    planner = make_planner()
    first, second = prompts(planner.plan(9))
    for lease, prompt in ((1, first), (2, first), (3, second)):
        feed(planner, prompt, lease=lease)
    assert planner.plan(0).settles == [2, 3]
    assert planner.state.recent == [1, 1]


@pytest.mark.parametrize("version", [2, 4])
def test_an_engine_that_names_versions_it_cannot_have_used_is_not_trained_on(version: int) -> None:
    # issued under version 3, and nothing after 3 is published: 2 is older than it was told, 4 does not exist
    planner = make_planner(FilterState(version=3, next_step=3))
    prompt = prompts(planner.plan(1))[0]
    feed(planner, prompt, version=version)
    assert len(planner.plan(0).settles) == 1
    assert planner.state.dropped == {"version_lie": 1}
    assert planner.state.recent == []  # says nothing about the data


def test_a_group_that_claims_a_later_prompt_than_it_was_given_is_caught_by_the_ledger() -> None:
    import msgspec

    planner = make_planner(FilterState(version=3, next_step=3))
    prompt = msgspec.structs.replace(prompts(planner.plan(1))[0], min_version=1)
    feed(planner, prompt, version=1)
    planner.plan(0)
    assert planner.state.dropped == {"version_lie": 1}


def dispatched_at_7(**changes: object) -> Planner:
    """num-d10: dispatched at version 7, tokens of versions 7 and 8, and the learner is at 9 when it arrives."""
    planner = make_planner(
        FilterState(version=7, next_step=7), **({"steps": 20, "groups_per_batch": 1, "on_stale": "drop"} | changes)
    )
    prompt = prompts(planner.plan(1))[0]
    planner.state.version = planner.state.next_step = 9
    spans = [Span(version=7, start=0, end=57), Span(version=8, start=57, end=128)]
    sample = Sample(num_tokens=128, finish="stop", spans=spans, text="")
    verdicts = [Verdict(verdict="correct", score=1.0), Verdict(verdict="wrong")]
    scored = Scored(group=Group(prompt=prompt, samples=[sample] * 2), verdicts=verdicts, terms=[{}, {}])
    planner.on_scored(1, scored, FRAMES)
    return planner


@pytest.mark.parametrize("policy", ["drop", "wait"])
def test_age_counts_from_the_oldest_token_and_a_stale_prompt_goes_out_again_first(policy: str) -> None:
    # staleness 9 - 7 = 2. With `wait` no group can get here; if one did, it would not be trained either.
    planner = dispatched_at_7(max_staleness=1, on_stale=policy)
    transaction = planner.plan(1)
    assert planner.state.dropped == {"stale": 1}
    assert [prompt.id for prompt in prompts(transaction)] == ["0/000000~1"]
    assert (batches(transaction), transaction.settles) == ([], [1])


def test_the_same_group_is_trained_when_the_bound_allows_its_age() -> None:
    transaction = dispatched_at_7(max_staleness=2).plan(0)
    assert len(batches(transaction)) == 1
    assert transaction.ages == [2]


def test_with_masks_a_group_goes_on_while_one_of_its_tokens_is_young_enough() -> None:
    assert len(batches(dispatched_at_7(max_staleness=1, on_stale="mask").plan(0))) == 1  # 9 - 8 = 1
    assert batches(dispatched_at_7(max_staleness=0, on_stale="mask").plan(0)) == []


def test_a_prompt_that_was_stale_twice_counts_its_attempts() -> None:
    planner = dispatched_at_7(max_staleness=1)
    again = prompts(planner.plan(1))[0]
    planner.state.version = planner.state.next_step = 12
    feed(planner, again, version=9)
    assert prompts(planner.plan(1))[0].id == "0/000000~2"
    assert planner.state.dropped == {"stale": 2}


def test_a_dead_letter_frees_its_place_once() -> None:
    planner = make_planner()
    first, _ = prompts(planner.plan(9))
    for _ in range(3):
        planner.on_dead([first.id])
    assert len(prompts(planner.plan(9))) == 1
    assert planner.state.dropped == {"dead": 1}


def test_a_group_that_dies_while_it_waits_for_its_batch_leaves_the_pool() -> None:
    planner = make_planner()
    first, _ = prompts(planner.plan(9))
    feed(planner, first)
    planner.on_dead([first.id])
    planner.plan(0)
    assert (planner.pool, planner.state.accepted, planner.state.dropped) == ({}, set(), {"dead": 1})


def test_a_scored_item_that_does_not_decode_ends_here() -> None:
    planner = make_planner(held_out=1)
    transaction = planner.plan(9)
    first, _ = prompts(transaction)
    planner.on_malformed(4, first.id)
    planner.on_malformed(5, prompts(transaction, "eval")[0].id)
    planner.on_malformed(6, "never/heard")
    assert planner.plan(0).settles == [4, 5, 6]
    assert planner.state.dropped == {"malformed": 1}
    assert planner.state.evals[0].finished


def test_at_the_cap_the_run_fails_with_an_exact_account_and_issues_nothing_more() -> None:
    # D11: batch of four groups, three rounds, every reward 0
    planner = make_planner(groups_per_batch=4, cap=12)
    transaction = planner.plan(99)
    for _ in range(3):
        assert not transaction.failure
        for prompt in prompts(transaction):
            planner.on_scored(1, make_scored(prompt, versions=[0], accuracies=(0, 0)), FRAMES)
        transaction = planner.plan(99)
    assert "max_dropped_in_a_row = 12" in transaction.failure
    assert "12 groups generated, 0 kept, dropped: all_wrong 12" in transaction.failure
    assert "easier rows" in transaction.failure
    assert prompts(transaction) == []
    assert len(transaction.settles) == 4
    assert planner.state.dropped == {"all_wrong": 12}


def test_a_kept_group_now_and_then_keeps_the_run_from_the_cap() -> None:
    planner = make_planner(cap=3, steps=50)
    for n in range(12):
        for prompt in prompts(planner.plan(99))[:1]:
            feed(planner, prompt, kept=n % 3 == 2)
    assert not planner.plan(99).failure


def test_a_prompt_that_did_not_fit_is_dropped_as_overlong_and_counted() -> None:
    # the rollout answers it with nothing, so that it is accounted for
    planner = make_planner()
    prompt = prompts(planner.plan(9))[0]
    sample = Sample(num_tokens=0, finish="length", spans=[Span(version=0, start=0, end=0)], text="")
    wrong = [Verdict(verdict="wrong")] * 2
    planner.on_scored(
        1, Scored(group=Group(prompt=prompt, samples=[sample] * 2), verdicts=wrong, terms=[{}, {}]), FRAMES
    )
    planner.plan(0)
    assert planner.state.dropped == {"overlong": 1}


def test_a_group_outside_the_band_is_dropped_and_replaced() -> None:
    run = make_run(steps=4, groups_per_batch=2, max_staleness=0)
    planner = makers.make_planner(FilterState(), run, pass_band=(0.3, 0.7))
    first, second = prompts(planner.plan(9))
    planner.on_scored(1, make_scored(first, versions=[0], accuracies=(1, 0, 0, 0)), FRAMES)
    planner.on_scored(2, make_scored(second, versions=[0], accuracies=(1, 1, 0, 0)), FRAMES)
    assert len(prompts(planner.plan(9))) == 1
    assert (planner.state.dropped, planner.state.accepted) == ({"too_hard": 1}, {second.id})


def test_held_out_rows_are_asked_at_the_first_version_and_never_trained() -> None:
    planner = make_planner(held_out=3)
    asked = prompts(planner.plan(0), "eval")
    assert [(p.id, p.sampling.temperature, p.sampling.n) for p in asked[:1]] == [("eval/0/000000", 0.0, 1)]
    for lease, prompt in enumerate(asked):
        feed(planner, prompt, lease=lease, kept=True)
    assert len(planner.plan(0).settles) == 3
    assert planner.state.evals[0].finished
    assert (planner.state.issued, planner.pool) == (0, {})


def test_a_tally_of_several_answers_survives_the_filter() -> None:
    # the first row is judged before the crash, the second after it: 1 of 2, then 2 of 2 right
    keys = {"held_out": 2, "eval_samples": 2}
    run = make_run(steps=4, groups_per_batch=2, max_staleness=0)
    planner = makers.make_planner(FilterState(), run, **keys)  # type: ignore[arg-type]
    first, second = prompts(planner.plan(0), "eval")
    assert (first.sampling.n, first.sampling.temperature) == (2, 1.0)
    planner.on_scored(1, make_scored(first, versions=[0], accuracies=(1, 0)), FRAMES)
    planner.plan(0)
    heir = makers.make_planner(loads(dumps(planner.state)), run, **keys)  # type: ignore[arg-type]
    assert prompts(heir.plan(0), "eval") == []  # nothing is asked twice
    heir.on_scored(1, make_scored(second, versions=[0], accuracies=(1, 1)), FRAMES)
    heir.plan(0)
    tally = heir.state.evals[0]
    assert (tally.finished, tally.accuracy, tally.pass_rates) == (True, 3 / 4, {1: 3 / 4, 2: 1.0})


def test_the_run_is_finished_only_after_the_last_version_is_evaluated() -> None:
    planner = make_planner(FilterState(version=4, next_step=4), held_out=1)
    (final,) = prompts(planner.plan(0), "eval")
    assert final.id == "eval/4/000000"
    assert not planner.finished
    feed(planner, final)
    planner.plan(0)
    assert planner.finished


@pytest.mark.parametrize("change", [{"rows": 21}, {"sampling": "signal"}])
def test_a_run_is_not_resumed_with_prompts_that_are_numbered_otherwise(change: dict[str, object]) -> None:
    # an id that was given before would be given to another prompt, and the broker would pass it over
    run = make_run(steps=4, groups_per_batch=2, max_staleness=0)
    planner = makers.make_planner(FilterState(), run)
    planner.plan(1)
    with pytest.raises(UserError, match="begun with 20 prompts an epoch, now there are"):
        makers.make_planner(loads(dumps(planner.state)), run, **change)  # type: ignore[arg-type]
    makers.make_planner(loads(dumps(planner.state)), run)


def test_a_restarted_filter_continues_exactly() -> None:
    # D26: the same next ids, account, pool and tallies as a twin that never stopped
    planner, twin = (make_planner(max_staleness=1, held_out=2) for _ in range(2))
    for either in (planner, twin):
        transaction = either.plan(3)
        feed(either, prompts(transaction, "eval")[0], lease=90)
        for lease, prompt in enumerate(prompts(transaction)):
            feed(either, prompt, kept=lease != 1, lease=lease)
    twin.plan(0)
    pool = list(twin.pool.values())
    twin = make_planner(loads(dumps(twin.state)), max_staleness=1, held_out=2)
    for waiting in reversed(pool):
        twin.on_scored(waiting.lease, waiting.scored, waiting.frames)
    planner.plan(0)
    assert [p.id for p in prompts(planner.plan(9))] == [p.id for p in prompts(twin.plan(9))]
    assert planner.state == twin.state
    assert planner.pool == twin.pool
    assert planner.state.evals[0].answered == 1
