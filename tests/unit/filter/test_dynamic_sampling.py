import pytest

from common.messages import Verdict
from services.filter.dynamic_sampling import drop_reason


def verdicts(accuracies: list[float | None]) -> list[Verdict]:
    return [
        Verdict(verdict="error") if a is None else Verdict(verdict="correct" if a >= 0.5 else "wrong", score=a)
        for a in accuracies
    ]


@pytest.mark.parametrize(
    ("accuracies", "reason"),
    [
        ([0, 0, 0, 0], "all_wrong"),
        ([1, 1, 1, 1], "all_correct"),
        ([1, 0, 0, 1], None),
        ([0.5, 0.5, 0.5, 0.5], "no_spread"),
        ([1.0, 1.0, 1.0, 1.000000001], "all_correct"),
        ([0.1 + 0.2, 0.3, 0.3, 0.3], "no_spread"),
        ([None, None, 1, 0], None),
        ([None, None, None, 1], "too_few_survivors"),
        ([None, 1, 1], "all_correct"),
        ([], "too_few_survivors"),
    ],
)
def test_a_group_is_kept_only_if_the_accuracies_of_its_survivors_differ(
    accuracies: list[float | None], reason: str | None
) -> None:
    assert drop_reason(verdicts(accuracies), min_survivors=2) == reason


def test_more_survivors_can_be_asked_for() -> None:
    assert drop_reason(verdicts([None, 1, 0]), min_survivors=3) == "too_few_survivors"
