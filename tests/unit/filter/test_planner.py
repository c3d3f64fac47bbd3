import pytest

from common import codec
from common.errors import UserError
from common.messages import BATCHES, PROMPTS, Batch, Feedback, Group, Prompt, Sample, Scored, Span, Verdict
from services.filter.config import FilterConfig
from services.filter.planner import Planner, Transaction
from services.filter.state import FilterState, dumps, loads
from tests.unit.filter.simulation import answer, make_rows, make_run


def make_planner(state: FilterState | None = None, *, held_out: int = 0, **changes: object) -> Planner:
    config = FilterConfig(data="none", eval_every=2, max_dropped_in_a_row=int(changes.pop("cap", 0)))  # type: ignore[call-overload]
    run = make_run(**({"steps": 4, "groups_per_batch": 2, "max_staleness": 0} | changes))
    return Planner(state or FilterState(), run=run, config=config, rows=make_rows(20), held_out=make_rows(held_out))


def prompts(transaction: Transaction, kind: str = "train") -> list[Prompt]:
    decoded = [codec.decode(Prompt, item.frames) for item in transaction.items if item.queue == PROMPTS]
    return [prompt for prompt in decoded if prompt.kind == kind]


def batches(transaction: Transaction) -> list[Batch]:
    return [codec.decode(Batch, item.frames) for item in transaction.items if item.queue == BATCHES]


def feed(planner: Planner, prompt: Prompt, *, kept: bool = True, version: int | None = None, lease: int = 1) -> None:
    scored = answer(prompt, version=prompt.min_version if version is None else version, kept=kept)
    planner.on_scored(lease, scored, [b"", b"", b""])


def test_no_more_prompts_are_issued_than_the_bound_allows() -> None:
    # (eta + 1) B = 2 at eta 0 and 6 at eta 2, whatever the room
    assert len(prompts(make_planner().plan(100))) == 2
    assert len(prompts(make_planner(max_staleness=2).plan(100))) == 6


def test_no_more_prompts_are_issued_than_waiting_rollouts_want() -> None:
    assert len(prompts(make_planner(max_staleness=2).plan(3))) == 3


def test_no_more_prompts_are_issued_than_the_remaining_steps_need() -> None:
    # one step of two groups is left, so two prompts although the bound allows eight
    assert len(prompts(make_planner(steps=1, max_staleness=3).plan(100))) == 2


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
    assert [scored.group.prompt.id for scored in batch.groups] == [first.id, second.id]
    assert sorted(transaction.settles) == [11, 12]
    assert batch.totals["issued"] == 2


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


def test_an_engine_that_used_older_weights_than_it_was_told_is_not_trained_on() -> None:
    planner = make_planner(FilterState(version=3, next_step=3))
    prompt = prompts(planner.plan(1))[0]
    feed(planner, prompt, version=2)
    planner.plan(0)
    assert planner.state.dropped == {"version_lie": 1}


def dispatched_at_7(max_staleness: int) -> Planner:
    """The reference: dispatched at version 7, tokens of versions 7 and 8, and the learner is at 9 when it arrives."""
    planner = make_planner(
        FilterState(version=7, next_step=7), steps=20, groups_per_batch=1, max_staleness=max_staleness, on_stale="drop"
    )
    prompt = prompts(planner.plan(1))[0]
    planner.state.version = planner.state.next_step = 9
    spans = [Span(version=7, start=0, end=57), Span(version=8, start=57, end=128)]
    sample = Sample(num_tokens=128, finish="stop", spans=spans, text="")
    verdicts = [Verdict(verdict="correct", score=1.0), Verdict(verdict="wrong")]
    scored = Scored(group=Group(prompt=prompt, samples=[sample] * 2), verdicts=verdicts, terms=[{}, {}])
    planner.on_scored(1, scored, [b"", b"", b""])
    return planner


def test_age_counts_from_the_oldest_token_and_a_stale_prompt_goes_out_again_first() -> None:
    planner = dispatched_at_7(max_staleness=1)
    transaction = planner.plan(1)
    assert planner.state.dropped == {"stale": 1}
    assert prompts(transaction)[0].id.endswith("~1")
    assert batches(transaction) == []


def test_the_same_group_is_trained_when_the_bound_allows_its_age() -> None:
    assert len(batches(dispatched_at_7(max_staleness=2).plan(0))) == 1


def test_a_dead_letter_frees_its_place_once() -> None:
    planner = make_planner()
    first, _ = prompts(planner.plan(9))
    for _ in range(3):
        planner.on_dead([first.id])
    assert len(prompts(planner.plan(9))) == 1
    assert planner.state.dropped == {"dead": 1}


def test_the_cap_on_drops_names_itself_and_the_counts() -> None:
    planner = make_planner(cap=3)
    for _ in range(2):  # four groups, all dropped
        for prompt in prompts(planner.plan(9) if planner.state.dropped_in_a_row < 3 else planner.plan(0)):
            feed(planner, prompt, kept=False)
    with pytest.raises(UserError, match=r"max_dropped_in_a_row is 3 \(4 generated, .*'all_correct': 4"):
        planner.plan(9)


def test_held_out_rows_are_asked_at_the_first_version_and_never_trained() -> None:
    planner = make_planner(held_out=3)
    asked = prompts(planner.plan(0), "eval")
    assert [(p.id, p.sampling.temperature, p.sampling.n) for p in asked[:1]] == [("eval/0/000000", 0.0, 1)]
    for lease, prompt in enumerate(asked):
        feed(planner, prompt, lease=lease, kept=True)
    assert len(planner.plan(0).settles) == 3
    assert planner.state.evals[0].finished
    assert planner.state.issued == 0


def test_the_run_is_finished_only_after_the_last_version_is_evaluated() -> None:
    planner = make_planner(FilterState(version=4, next_step=4), held_out=1)
    (final,) = prompts(planner.plan(0), "eval")
    assert final.id == "eval/4/000000"
    assert not planner.finished
    feed(planner, final)
    planner.plan(0)
    assert planner.finished


def test_a_restarted_filter_continues_exactly() -> None:
    planner, twin = make_planner(max_staleness=1), make_planner(max_staleness=1)
    for either in (planner, twin):
        for lease, prompt in enumerate(prompts(either.plan(3))):
            feed(either, prompt, kept=lease != 1, lease=lease)
    twin.plan(0)
    pool = list(twin.pool.values())
    twin = make_planner(loads(dumps(twin.state)), max_staleness=1)
    for waiting in pool:
        twin.on_scored(waiting.lease, waiting.scored, waiting.frames)
    planner.plan(0)
    assert [p.id for p in prompts(planner.plan(9))] == [p.id for p in prompts(twin.plan(9))]
    assert planner.state == twin.state


def test_an_account_that_does_not_add_up_is_refused() -> None:
    state = FilterState(issued=5, trained=3)
    with pytest.raises(AssertionError, match="5 groups issued, 3 accounted for"):
        state.check()
