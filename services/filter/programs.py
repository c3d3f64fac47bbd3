"""The tests of a row whose answer is a program: where they stand, and whether there are any.

    own, TACO, APPS   {"tests" | "input_output": {"inputs": [...], "outputs": [...], "fn_name"?}}
    LiveCodeBench     {"public_test_cases": [{"input", "output", "testtype"}, ...]}, function name in the metadata
    prime-rl          {"verification_info": {"test_cases": [{"input", "output", "fn_name"?}, ...]}}
    verl              {"data_source": "apps" | "taco" | "codecontests" | "codeforces", "reward_model": {"ground_truth"}}

They go to the verifier `code` as they are, as JSON text. LiveCodeBench's private tests are a pickle and stay out.
"""

import json
from collections.abc import Mapping
from typing import Any

from common.messages import Task
from services.filter.values import UnusableError, first

SOURCES = frozenset({"apps", "taco", "codecontests", "codeforces"})
"""The data sources of verl whose ground truth is tests."""
COLUMNS = ("tests", "input_output", "public_test_cases", "test_cases")


def tests_of(raw: Mapping[str, Any]) -> str:
    """The tests as JSON text; empty if the row has none."""
    value = first(raw, *COLUMNS)
    if not value:
        value = _object(raw.get("verification_info")).get("test_cases")
    if not value:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def check_tests(task: Task) -> None:
    """Refuse tests that no program could be judged by; raises `UnusableError`."""
    try:
        tests = json.loads(task.tests or task.gold or "null")
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"the tests are not JSON ({error})") from None
    if isinstance(tests, Mapping):
        inputs, outputs = tests.get("inputs"), tests.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list):
            raise UnusableError("the tests lack `inputs` or `outputs`, a list each")
        if len(inputs) != len(outputs):
            raise UnusableError(f"the tests have {len(inputs)} inputs, but {len(outputs)} outputs")
        tests = inputs
    elif not isinstance(tests, list) or not all(isinstance(test, Mapping) and "output" in test for test in tests):
        raise UnusableError("the tests are neither {inputs, outputs} nor a list of {input, output}")
    if not tests:
        raise UnusableError("there are no tests: every program would pass")


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
