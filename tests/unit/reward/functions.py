"""A user's verifiers, for the tests: they are named by import path and run in the workers."""

import time
from typing import Any

from common.messages import Task, Verdict

Anything = Any


def polite(output: str, task: Task) -> float:
    """Share of the gold answer's words that are there."""
    words = task.gold.split()
    return sum(word in output for word in words) / len(words)


def of_text(output: str, task: Task) -> Anything:
    """Whatever the output says."""
    return {
        "true": True, "false": False, "none": None, "half": 0.5, "text": "no", "two": 2.0, "nan": float("nan"),
        "verdict": Verdict(verdict="correct", score=0.75), "bad": Verdict(verdict="correct", score=7.0),
    }[output]  # fmt: skip


def hangs(output: str, task: Task) -> float:
    """Never returns for `hang`."""
    while output == "hang":
        time.sleep(0.1)
    return 1.0


def busy(output: str, task: Task) -> float:
    """Computes for as many seconds of the processor as the gold answer says."""
    end_s = time.process_time() + float(task.gold)
    while time.process_time() < end_s:
        pass
    return 1.0


def grows(output: str, task: Task) -> bool:
    """Keeps 8 MiB of memory at every call."""
    _kept.append(b"x" * (8 << 20))
    return True


_kept: list[bytes] = []
not_a_function = 7
