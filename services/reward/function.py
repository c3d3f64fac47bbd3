"""A user's own verifier, by import path: `python:package.module:function`, called with (output, task).

    def polite(output: str, task: Task) -> float:
        return float("please" in output.lower())

task        common.messages.Task: gold, metadata (JSON text), data_source, tests
returns     a score in [0, 1] (correct from 0.5 on, or from `passing` of the metadata), True or False, a `Verdict`, or
            None: it cannot tell, which is an error

An exception is an error too, `exception: ...`: it says nothing of the text. The function runs in the same killable
workers as every verifier, so one that never returns is stopped and its answer is wrong. It must not keep state.

Only a configuration may name such a function ([reward] functions): a data set that could would run code.
"""

import importlib
import math
from collections.abc import Callable
from typing import Any

from common.messages import Task, Verdict
from services.reward.texts.response import passing
from services.reward.verifiers import UnusableError, Verifier, correct, error, graded, wrong

PASSING = 0.5


def user_function(path: str) -> Verifier:
    """The verifier at `package.module:function`; raises `UnusableError` if there is none."""
    function = found(path)

    def verify(output: str, task: Task) -> Verdict:
        try:
            value = function(output, task)
        except MemoryError:
            raise
        except Exception as failure:
            return error(f"exception: {type(failure).__name__}: {failure}"[:300])
        return verdict_of(value, task)

    return verify


def found(path: str) -> Callable[[str, Task], Any]:
    """The function itself."""
    module, colon, name = path.partition(":")
    if not colon or not name.isidentifier():
        raise UnusableError(f"`python:{path}` is no import path: write python:package.module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as failure:
        raise UnusableError(f"`python:{path}` cannot be imported ({type(failure).__name__}: {failure})") from failure
    if not callable(function):
        raise UnusableError(f"`python:{path}` is not a function")
    return function


def verdict_of(value: Any, task: Task) -> Verdict:
    """What a function returned, as a verdict."""
    if isinstance(value, Verdict):
        return value if 0 <= value.score <= 1 else error(f"no score: {value.score}")
    if isinstance(value, bool):
        return correct("true") if value else wrong("false")
    if value is None:
        return error("no verdict: the function returned None")
    try:
        score = float(value)
    except (TypeError, ValueError):
        return error(f"no score: a value of type {type(value).__name__}")
    if not math.isfinite(score) or not 0 <= score <= 1:
        return error(f"no score: {score} is not in [0, 1]")
    return graded(score, passing=passing(task, PASSING))
