import json

import pytest

from common.messages import Task
from services.reward.texts.classification import verify_classification
from services.reward.verifiers import BadGoldError

LABELS = json.dumps({"labels": ["positive", "negative", "very positive"]})


def judged(output: str, gold: str = "positive", metadata: str = LABELS) -> tuple[str, str]:
    verdict = verify_classification(output, Task(verifier="classification", gold=gold, metadata=metadata))
    return verdict.verdict, verdict.reason


@pytest.mark.parametrize(
    "output",
    [
        "positive", "Positive.", "<think>negative?</think>positive", "Sentiment: positive", "It is positive.",
        r"\boxed{positive}", r"\boxed{\text{Positive}}", "The text praises it.\n\n**Label:** Positive",
        "<answer>positive</answer>",
    ],
)  # fmt: skip
def test_a_label_is_read_however_it_is_written(output: str) -> None:
    assert judged(output) == ("correct", "label: positive")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("negative", "label: negative"), ("very positive", "label: very positive"), ("It is not positive.", "no label"),
        ("positive or negative", "no label"), ("", "no label"), ("positively", "no label"),
        ("<think>positive", "no label"),
    ],
)  # fmt: skip
def test_another_label_or_none_is_wrong(output: str, reason: str) -> None:
    assert judged(output) == ("wrong", reason)


def test_without_labels_any_answer_is_one() -> None:
    assert judged("Sports", "sports", "") == ("correct", "label: sports")
    assert judged("politics", "sports", "") == ("wrong", "label: politics")


@pytest.mark.parametrize(
    ("gold", "metadata"), [("", ""), ("neutral", LABELS), ("a", '{"labels": "a"}'), ("a", "{broken"), ("a", "[1]")]
)
def test_a_row_that_cannot_be_judged_is_an_error(gold: str, metadata: str) -> None:
    with pytest.raises(BadGoldError):
        judged("positive", gold, metadata)
