"""What judges an answer: a function (output, task) -> verdict, known by name.

    correct   the output solves the task
    wrong     it does not; also when judging it broke a limit (reasons `timeout...`, `memory`): that is a statement
              about the text, and whoever writes what cannot be judged must not gain by it
    error     the verifier could not judge (`bad_gold`, a dead worker): no statement about the text, never a reward

The score beside it is in [0, 1]: 1 for correct and 0 for wrong, unless the verifier is graded; then a verdict is
correct from a score on that the verifier names. Filter and reward see the score, pass@k sees the verdict.

A verifier is pure and runs in a worker process (worker.py) that may be killed at any moment.
"""

import importlib
from typing import Protocol

from common.messages import PYTHON, Task, Verdict

CODE = "code"
"""The verifier that runs programs, in a sandbox and under limits of its own."""
BAD_GOLD = "bad_gold"
UNUSABLE = "unusable"
TIMEOUT = "timeout"
MEMORY = "memory"
TOLERANCE = 1e-9


class Verifier(Protocol):
    """Judges one output."""

    def __call__(self, output: str, task: Task) -> Verdict:
        """The verdict; an exception is a bug of the verifier."""


class BadGoldError(Exception):
    """The row cannot be judged: its gold answer or its metadata is unusable, whatever the text."""


class UnusableError(Exception):
    """No row can be judged by this verifier before the user has done something: its text says what."""


FUNCTIONS = {
    "math": "services.reward.maths.verifier:verify_math",
    "exact": "services.reward.exact:verify_exact",
    "regex": "services.reward.texts.regex:verify_regex",
    "choice": "services.reward.texts.choice:verify_choice",
    "json_schema": "services.reward.texts.json_schema:verify_json_schema",
    "classification": "services.reward.texts.classification:verify_classification",
    "bleu": "services.reward.texts.overlap:verify_bleu",
    "chrf": "services.reward.texts.overlap:verify_chrf",
    "rouge": "services.reward.texts.rouge:verify_rouge",
    "reasoning_gym": "services.reward.gym:verify_gym",
    CODE: "services.reward.code.verifier:verify_code",
}
"""Those that run in a worker; `judge` and `http` are in remote/, `python:` is function.py."""
LIBRARIES = {
    "json_schema": "jsonschema", "bleu": "sacrebleu", "chrf": "sacrebleu", "reasoning_gym": "reasoning-gym",
    "code": "pyseccomp",
}  # fmt: skip
"""Verifier -> the library it needs beyond those of every installation."""
EXTRAS = {"reasoning_gym": "data"}


def is_local(name: str) -> bool:
    """Whether a verifier of that name runs in a worker."""
    return name in FUNCTIONS or name.startswith(PYTHON)


def load(name: str) -> Verifier | None:
    """The verifier of that name; None if there is none. Heavy libraries are imported here, by those who judge."""
    if name.startswith(PYTHON):
        from services.reward.function import user_function

        return user_function(name.removeprefix(PYTHON))
    if name not in FUNCTIONS:
        return None
    module, _, function = FUNCTIONS[name].partition(":")
    try:
        verifier: Verifier = getattr(importlib.import_module(module), function)
    except ImportError as missing:
        raise UnusableError(
            f"verifier `{name}` needs the library `{LIBRARIES.get(name, missing.name)}`, which is not installed: "
            f"pip install 'dapo[{EXTRAS.get(name, 'rewards')}]'"
        ) from missing
    return verifier


def correct(reason: str, score: float = 1.0) -> Verdict:
    """The output solves the task."""
    return Verdict(verdict="correct", score=score, reason=reason)


def wrong(reason: str, score: float = 0.0) -> Verdict:
    """The output does not solve the task, or only so far."""
    return Verdict(verdict="wrong", score=score, reason=reason)


def graded(score: float, *, passing: float, reason: str = "") -> Verdict:
    """The verdict of a score from 0 to 1: correct from `passing` on."""
    reason = reason or f"score {score:.3f}"
    return correct(reason, score) if score >= passing - TOLERANCE else wrong(reason, score)


def error(reason: str) -> Verdict:
    """The verifier cannot tell."""
    return Verdict(verdict="error", reason=reason)
