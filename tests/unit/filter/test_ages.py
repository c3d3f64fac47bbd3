import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from common.messages import Group, Prompt, Sample, Sampling, Scored, Span
from services.filter.ages import admissible, chosen_batch, earliest_first, may_close, versions_of
from tests.unit.filter.makers import make_rows

ORDER = {"due": 0, "x": 1, "y": 2, "a": 0, "b": 2, "c": 1}


def satisfies(left: list[int], *, step: int, groups_per_batch: int, max_staleness: int) -> bool:
    """The condition written out for every step j."""
    deadlines = Counter(s + max_staleness for s in left)
    return all(
        sum(count for deadline, count in deadlines.items() if deadline <= j) <= (j - step) * groups_per_batch
        for j in range(step, 40)
    )


def test_admission_counts_everything_that_is_not_yet_trained() -> None:
    assert admissible(num_outstanding=5, groups_per_batch=2, max_staleness=2) == 1  # (2 + 1) * 2 - 5
    assert admissible(num_outstanding=9, groups_per_batch=2, max_staleness=2) == 0


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(0, 12), st.integers(1, 5), st.integers(0, 6))
def test_may_close_is_the_condition_written_out_for_every_step(
    left: list[int], step: int, groups_per_batch: int, max_staleness: int
) -> None:
    limits = {"step": step, "groups_per_batch": groups_per_batch, "max_staleness": max_staleness}
    assert may_close(left, **limits) == satisfies(left, **limits)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=9),
    st.integers(0, 6),
    st.integers(1, 3),
    st.integers(0, 4),
)
def test_a_batch_closes_whenever_any_choice_of_its_groups_would_do(
    groups: list[tuple[int, bool]], step: int, groups_per_batch: int, max_staleness: int
) -> None:
    # earliest deadline first is the best choice: if it may not close, no other set of B accepted groups may
    limits = {"step": step, "groups_per_batch": groups_per_batch, "max_staleness": max_staleness}
    outstanding = {str(place): s for place, (s, _) in enumerate(groups)}
    accepted = [str(place) for place, (_, is_back) in enumerate(groups) if is_back]
    possible = any(
        satisfies([s for group, s in outstanding.items() if group not in choice], **limits)
        for choice in itertools.combinations(accepted, groups_per_batch)
    )
    chosen = chosen_batch(outstanding, accepted, int, **limits, wait=True)
    assert (chosen is not None) == possible
    if chosen is not None:
        assert chosen == sorted(chosen, key=int)
        assert satisfies([s for group, s in outstanding.items() if group not in chosen], **limits)


def test_the_earliest_deadline_goes_first_then_the_earliest_issued() -> None:
    assert earliest_first({"a": 3, "b": 1, "c": 1}, ORDER.__getitem__, 2) == ["c", "b"]


def test_a_batch_waits_for_a_group_that_is_due_now() -> None:
    # eta 1, step 1: the group with s = 0 is due and not back yet, although two others are ready
    outstanding = {"due": 0, "x": 1, "y": 1}
    order = ORDER.__getitem__
    limits = {"step": 1, "groups_per_batch": 2, "max_staleness": 1}
    assert chosen_batch(outstanding, {"x", "y"}, order, **limits, wait=True) is None
    assert chosen_batch(outstanding, {"x", "y"}, order, **limits, wait=False) == ["x", "y"]
    assert chosen_batch(outstanding, {"due", "x", "y"}, order, **limits, wait=True) == ["due", "x"]


def test_the_example_of_the_note() -> None:
    # docs/ages-and-batches.md: B = 2, eta = 1, d is slow
    order = "abcdef".index
    limits = {"groups_per_batch": 2, "max_staleness": 1, "wait": True}
    assert chosen_batch(dict.fromkeys("abcd", 0), "ac", order, **limits, step=0) == ["a", "c"]
    left = {"b": 0, "d": 0, "e": 1, "f": 1}
    assert chosen_batch(left, "bef", order, **limits, step=1) is None
    assert chosen_batch(left, "bdef", order, **limits, step=1) == ["b", "d"]
    assert chosen_batch({"b": 0, "e": 1, "f": 1}, "bef", order, **limits, step=1) == ["b", "e"]


def scored_by(*spans: Span, min_version: int = 0) -> Scored:
    row = make_rows(1)[0]
    prompt = Prompt(
        id="0/000000", row=0, chat=list(row.chat), task=row.task, min_version=min_version,
        sampling=Sampling(n=1, temperature=1.0, max_tokens=8, seed=0),
    )  # fmt: skip
    sample = Sample(num_tokens=sum(s.end - s.start for s in spans), finish="stop", spans=list(spans), text="")
    return Scored(group=Group(prompt=prompt, samples=[sample]), verdicts=[], terms=[])


def test_the_age_of_a_group_is_that_of_its_oldest_token() -> None:
    # num-d10: tokens 0..56 by version 7, 57..127 by version 8
    scored = scored_by(Span(version=7, start=0, end=57), Span(version=8, start=57, end=128))
    assert versions_of(scored) == (7, 8)


def test_a_span_without_tokens_has_no_age() -> None:
    assert versions_of(scored_by(Span(version=2, start=0, end=0), Span(version=4, start=0, end=3))) == (4, 4)
    assert versions_of(scored_by(Span(version=2, start=0, end=0), min_version=3)) == (3, 3)
