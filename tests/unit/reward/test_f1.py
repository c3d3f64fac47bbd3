import pytest

from common.messages import Task, Verdict
from services.reward.f1 import MacroF1


def add(f1: MacroF1, gold: str, label: str | None, verifier: str = "classification") -> bool:
    verdict = Verdict(verdict="wrong", reason=f"label: {label}" if label else "no label")
    return f1.add(Task(verifier=verifier, gold=gold), verdict)


def test_the_mean_over_the_gold_labels_of_their_f1() -> None:
    f1 = MacroF1()
    assert f1.value is None
    for gold, label in (("A", "a"), ("a", "b"), ("b", "b"), ("b", "b"), ("c", None)):
        assert add(f1, gold, label)
    # a: 2*1 / (2 + 1) = 2/3;  b: 2*2 / (2 + 3) = 4/5;  c: 0
    assert f1.value == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)


def test_only_what_was_judged_counts_and_only_in_the_window() -> None:
    f1 = MacroF1(window=2)
    assert not add(f1, "a", "a", verifier="exact")
    assert not f1.add(Task(verifier="classification", gold="a"), Verdict(verdict="error"))
    for label in ("b", "a", "a"):
        add(f1, "a", label)
    assert f1.value == 1.0
