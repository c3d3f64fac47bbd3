"""What judges an answer: a function (output, task) -> verdict, known by name.

    correct   the output solves the task
    wrong     it does not; also when judging it broke a limit (reasons `timeout...`, `memory`): that is a statement
              about the text, and whoever writes what cannot be judged must not gain by it
    error     the verifier could not judge (`bad_gold`, a dead worker): no statement about the text, never a reward

A verifier is pure and runs in a worker process (worker.py) that may be killed at any moment.
"""

from typing import Protocol

from common.messages import Task, Verdict

BAD_GOLD = "bad_gold"
TIMEOUT = "timeout"
MEMORY = "memory"


class Verifier(Protocol):
    """Judges one output."""

    def __call__(self, output: str, task: Task) -> Verdict:
        """The verdict; an exception is a bug of the verifier."""


def load(name: str) -> Verifier | None:
    """The verifier of that name; None if there is none. Heavy libraries are imported here, by those who judge."""
    if name == "math":
        from services.reward.maths.verifier import verify_math

        return verify_math
    if name == "exact":
        from services.reward.exact import verify_exact

        return verify_exact
    return None


def correct(reason: str, score: float = 1.0) -> Verdict:
    """The output solves the task."""
    return Verdict(verdict="correct", score=score, reason=reason)


def wrong(reason: str) -> Verdict:
    """The output does not solve the task."""
    return Verdict(verdict="wrong", reason=reason)


def error(reason: str) -> Verdict:
    """The verifier cannot tell."""
    return Verdict(verdict="error", reason=reason)
