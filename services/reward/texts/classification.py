"""The verifier `classification`: the label of the answer is that of the gold answer.

    {"answer": "positive", "metadata": {"labels": ["positive", "negative", "neutral"]}}

Case, spaces and signs around a label do not count. The label is the final answer as found for `math`, or the last line
of the answer (texts/response.py), or what follows its last colon or its last "is": the first of these that is one of
`labels`. A label within other words is none: "not positive" is not positive. Without `labels` any answer is a label.

The reason of a verdict is `label: NAME`; f1.py makes the macro F1 of the last answers of it.
"""

import re

from common.messages import Task, Verdict
from services.reward.maths.extraction import final_answer
from services.reward.texts.response import response, settings, undecorated
from services.reward.verifiers import BadGoldError, correct, wrong

LABEL = "label: "
"""The reason of a verdict of this verifier, before the label."""


def verify_classification(output: str, task: Task) -> Verdict:
    """Whether the label is the gold label."""
    gold, labels = label_key(task.gold), labels_of(task)
    if not gold or (labels and gold not in labels):
        raise BadGoldError("the answer is none of the labels" if gold else "there is no label")
    label = predicted(output, labels)
    if not label:
        return wrong("no label")
    return (correct if label == gold else wrong)(LABEL + label[:200])


def predicted(output: str, labels: list[str]) -> str:
    """The label of an output; empty if it gives none."""
    found = final_answer(output)
    last = (response(output) or "").rpartition("\n")[2]
    candidates = [found.text] if found else []
    candidates += [last, last.rpartition(":")[2], re.split(r"\bis\b", last)[-1]]
    keys = [key for key in map(label_key, candidates) if key and (not labels or key in labels)]
    return keys[0] if keys else ""


def labels_of(task: Task) -> list[str]:
    """The labels of a row; empty if any will do."""
    found = settings(task).get("labels", [])
    if not isinstance(found, list) or not all(isinstance(label, str) and label_key(label) for label in found):
        raise BadGoldError("`labels` of the metadata is not a list of texts")
    return [label_key(label) for label in found]


def label_key(text: str) -> str:
    """A label in one spelling."""
    return re.sub(r"^[^\w]+|[^\w]+$", "", " ".join(undecorated(text).casefold().split()))
