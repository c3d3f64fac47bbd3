"""Macro F1 of a classification: the mean over the labels of 2 TP / (2 TP + FP + FN).

Over the gold labels of the last `WINDOW` answers that were judged; an answer of another label, or of none, is a miss of
its gold label. A statement about many answers, so no reward: it stands beside the accuracy on /metrics and in `dapo
verify`.
"""

from collections import Counter, deque

from prometheus_client import Gauge

from common.messages import Task, Verdict
from services.reward.texts.classification import LABEL, label_key

WINDOW = 1000
MACRO_F1 = Gauge("dapo_reward_macro_f1_ratio", f"Macro F1 of the last {WINDOW} answers of `classification`.")


class MacroF1:
    """The last pairs of gold label and label."""

    def __init__(self, window: int | None = WINDOW) -> None:
        """None: of all pairs."""
        self._pairs: deque[tuple[str, str]] = deque(maxlen=window)

    def add(self, task: Task, verdict: Verdict) -> bool:
        """Count an answer; returns whether it is one of a classification."""
        if task.verifier != "classification" or verdict.verdict == "error":
            return False
        self._pairs.append((label_key(task.gold), verdict.reason.removeprefix(LABEL)))
        return True

    @property
    def value(self) -> float | None:
        """The mean F1; None before the first pair."""
        golds = Counter(gold for gold, _ in self._pairs)
        found = Counter(label for _, label in self._pairs)
        right = Counter(gold for gold, label in self._pairs if gold == label)
        scores = [2 * right[label] / (number + found[label]) for label, number in golds.items()]
        return sum(scores) / len(scores) if scores else None
