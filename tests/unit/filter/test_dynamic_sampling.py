import pytest

from common.messages import Verdict
from services.filter.dynamic_sampling import REMEDIES, cap_message, drop_reason


def verdicts(accuracies: list[float | None]) -> list[Verdict]:
    return [
        Verdict(verdict="error") if a is None else Verdict(verdict="correct" if a >= 0.5 else "wrong", score=a)
        for a in accuracies
    ]


@pytest.mark.parametrize(
    ("accuracies", "reason"),
    [
        # the six groups of num-d02; their shaped rewards differ by length, which nobody looks at
        ([0, 0, 0, 0], "all_wrong"),
        ([1, 1, 1, 1], "all_correct"),
        ([1, 0, 0, 1], None),
        ([0.5, 0.5, 0.5, 0.5], "no_spread"),
        ([1.0, 1.0, 1.0, 1.000000001], "all_correct"),
        ([0.1 + 0.2, 0.3, 0.3, 0.3], "no_spread"),
        # graded verdicts, and verifiers that failed
        ([0.5, 0.5, 0.5, 0.500002], None),
        ([None, None, 1, 0], None),
        ([None, None, None, 1], "too_few_survivors"),
        ([None, None, None, None], "too_few_survivors"),
        ([None, 1, 1], "all_correct"),
        ([], "too_few_survivors"),
    ],
)
def test_a_group_is_kept_only_if_the_accuracies_of_its_survivors_differ(
    accuracies: list[float | None], reason: str | None
) -> None:
    assert drop_reason(verdicts(accuracies), min_survivors=2) == reason


@pytest.mark.parametrize(
    ("right", "reason"), [(0, "all_wrong"), (1, "too_hard"), (2, None), (8, None), (9, "too_easy"), (10, "all_correct")]
)
def test_a_band_keeps_the_pass_rates_within_it_and_its_limits(right: int, reason: str | None) -> None:
    assert drop_reason(verdicts([1] * right + [0] * (10 - right)), min_survivors=2, pass_band=(0.2, 0.8)) == reason


def test_the_pass_rate_is_that_of_the_survivors() -> None:
    # 1 of 2 = 0.5, not 1 of 10
    assert drop_reason(verdicts([1, 0, *[None] * 8]), min_survivors=2, pass_band=(0.2, 0.8)) is None


@pytest.mark.parametrize(("accuracies", "reason"), [([0, 0], "overlong"), ([1, 0], None), ([1, 1], "all_correct")])
def test_answers_that_all_lacked_room_are_told_from_wrong_ones(accuracies: list[float], reason: str | None) -> None:
    assert drop_reason(verdicts(accuracies), min_survivors=2, cut=True) == reason  # type: ignore[arg-type]


@pytest.mark.parametrize(("accuracies", "reason"), [([1, 1], None), ([0, 0], None), ([1, None], "too_few_survivors")])
def test_without_dynamic_sampling_only_the_survivors_count(accuracies: list[float | None], reason: str | None) -> None:
    assert drop_reason(verdicts(accuracies), min_survivors=2, dynamic=False, pass_band=(0.4, 0.6)) == reason


def test_a_failed_verifier_is_no_wrong_answer() -> None:
    # the score of an error is 0; taken for an accuracy it would keep this group
    assert drop_reason(verdicts([1, 1, None]), min_survivors=2) == "all_correct"


def test_more_survivors_can_be_asked_for() -> None:
    assert drop_reason(verdicts([None, 1, 0]), min_survivors=3) == "too_few_survivors"


@pytest.mark.parametrize(
    ("reason", "remedy"), [("all_wrong", "easier rows"), ("all_correct", "harder rows"), ("dead", "logs of rollout")]
)
def test_the_cap_names_itself_the_counts_and_what_to_change(reason: str, remedy: str) -> None:
    message = cap_message(12, dropped={reason: 11, "stale": 1}, kept=0)
    assert message.startswith("[filter] max_dropped_in_a_row = 12 is reached")
    assert f"12 groups generated, 0 kept, dropped: {reason} 11, stale 1" in message
    assert remedy in message


def test_every_reason_has_a_remedy() -> None:
    assert all(cap_message(1, dropped={reason: 1}, kept=0) for reason in REMEDIES)
