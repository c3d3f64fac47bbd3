"""The verifier `code`: a program is right if it passes every test of its row.

    output -> program (extraction.py) -> run test by test (sandbox.py) -> compared (values.py) -> verdict

It stops at the first test that fails, unless the metadata has `partial`: then all run, and the score is the share that
passed. `time_limit` (seconds of one test) and `memory_limit` (MiB) of the metadata are the row's own. How a program
ends decides only where nothing else does: one that prints the right text and then exits with an error is wrong.
"""

import functools
import os
import time
from typing import Any

import msgspec

from common.messages import Task, Verdict
from services.reward.code import values
from services.reward.code.cases import Case, cases_of
from services.reward.code.extraction import program_of
from services.reward.code.sandbox import Ended, Program, Sandbox, SandboxError
from services.reward.limits import GREATEST_CASE_S, GREATEST_MEMORY_MIB, Limits
from services.reward.texts.response import settings
from services.reward.verifiers import BadGoldError, UnusableError, correct, error, graded, wrong

PASSED = ""


def verify_code(output: str, task: Task, limits: Limits | None = None) -> Verdict:
    """The verdict of all tests."""
    tests, limits = cases_of(task), _limits(task, limits or Limits())
    partial = settings(task).get("partial") is True
    source = program_of(output, tests.function)
    if source is None:
        return wrong("no program")
    program = Program(source=source, function=tests.function)
    deadline = time.monotonic() + limits.total_s
    passed, failure = 0, PASSED
    for number, case in enumerate(tests.cases, start=1):
        if time.monotonic() > deadline:
            return wrong(f"timeout: all tests together, after {number - 1} of {len(tests.cases)}")
        try:
            why = _failure(program, case, limits)
        except SandboxError as problem:
            _close()
            return error(f"sandbox: {problem}")
        if why == "starved":
            return error(f"starved: test {number} hardly got the processor")
        passed += why == PASSED
        failure = failure or (why and f"{why} (test {number} of {len(tests.cases)})")
        if failure and not partial:
            return wrong(failure)
    share = passed / len(tests.cases)
    return graded(share, passing=1.0, reason=failure) if failure else correct(f"{passed} tests passed")


def _failure(program: Program, case: Case, limits: Limits) -> str:
    """Why a program does not pass a test; empty if it does."""
    ended = _sandbox(limits.unconfined).run(program, stdin=case.stdin, arguments=case.arguments, limits=limits)
    if not ended.confined and ended.cause == "exit":
        raise SandboxError(f"it could not be set up: {_last_line(ended.errors)}")
    if ended.cause != "exit":
        return ended.cause
    if program.function:
        return _wrong_value(ended, case)
    if ended.exit_status:
        return _error_of(ended)
    printed = ended.printed.decode(errors="replace")
    return PASSED if values.same_text(printed, case.expected[0]) else "wrong output"


def _wrong_value(ended: Ended, case: Case) -> str:
    text = ended.returned.strip()
    if not text:
        return _error_of(ended) if ended.exit_status else "runtime_error: it ended before the function returned"
    try:
        returned: Any = values.read_json(text.decode())
    except (ValueError, RecursionError):
        return "wrong value"
    return PASSED if any(values.same_value(returned, wanted) for wanted in case.expected) else "wrong value"


def _error_of(ended: Ended) -> str:
    line = _last_line(ended.errors)
    if line.startswith("MemoryError"):
        return "memory"
    return f"runtime_error: {line[:100] or f'exit status {ended.exit_status}'}"


def _last_line(errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _limits(task: Task, limits: Limits) -> Limits:
    """The limits, with what the row says of its own."""
    own = settings(task)
    case_s = _number(own, "time_limit", limits.case_s, GREATEST_CASE_S)
    memory = _number(own, "memory_limit", limits.memory_mib, GREATEST_MEMORY_MIB)
    return msgspec.structs.replace(limits, case_s=case_s, memory_mib=int(memory))


def _number(own: dict[str, Any], key: str, default: float, most: float) -> float:
    value = own.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise BadGoldError(f"`{key}` of the metadata is not a number above 0, at most {most:g}")
    return float(value)


@functools.cache
def _sandbox_of(process: int) -> Sandbox:
    """The sandbox of this process; a forked one does not use its parent's."""
    return Sandbox()


def _sandbox(unconfined: bool) -> Sandbox:
    sandbox = _sandbox_of(os.getpid())
    if not unconfined and not {"seccomp", "bubblewrap"} & set(sandbox.layers):
        raise UnusableError(
            "verifier `code` runs programs of the model, and nothing on this machine confines them: install libseccomp "
            "(libseccomp2) or bubblewrap, or set [reward.code] unconfined = true on a machine that you throw away"
        )
    return sandbox


def _close() -> None:
    _sandbox_of(os.getpid()).close()
    _sandbox_of.cache_clear()
