"""The forms of tests, where the program stands in an answer, and when two values are the same."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.messages import Task
from services.reward.code.cases import cases_of
from services.reward.code.extraction import program_of
from services.reward.code.values import read_json, same_text, same_value
from services.reward.verifiers import BadGoldError
from services.reward.worker import judge

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def code(tests: object, metadata: str = "") -> Task:
    return Task(verifier="code", tests=json.dumps(tests), metadata=metadata)


def test_apps_with_lists_of_arguments_and_boxed_results() -> None:
    tests = cases_of(code({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}))
    assert (tests.function, tests.cases[0].arguments, tests.cases[0].expected) == ("add", [1, 2], ([3], 3))


def test_livecodebench_has_the_function_s_name_in_the_metadata() -> None:
    row = {"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}
    tests = cases_of(code([row], metadata='{"func_name": "total"}'))
    assert (tests.function, tests.cases[0].arguments, tests.cases[0].expected) == ("total", [[1, 2], 3], (6,))


def test_livecodebench_standard_input() -> None:
    tests = cases_of(code([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]))
    assert (tests.function, tests.cases[0].stdin, tests.cases[0].expected) == ("", "1 2\n", ("3\n",))


def test_keys_that_were_integers_are_integers_again() -> None:
    tests = cases_of(code({"fn_name": "f", "inputs": [[{"1": "a"}]], "outputs": [["a"]]}))
    assert tests.cases[0].arguments == [{1: "a"}]


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs, but 0 outputs"),
        ("eJxrYJ", "neither"),
        ({"fn_name": "f", "inputs": ["[1"], "outputs": ["1"]}, "not JSON"),
        ([{"input": "1"}], "neither"),
    ],
)
def test_tests_that_cannot_be_used_are_no_statement_about_the_program(tests: object, said: str) -> None:
    with pytest.raises(BadGoldError, match=said):
        cases_of(code(tests))
    assert judge("```python\nprint(1)\n```", code(tests)).verdict == "error"


@pytest.mark.parametrize(
    ("output", "function", "program"),
    [
        ("```python\na = input()\n```\nTry it:\n```python\nprint('demo')\n```", "", "a = input()\n"),
        ("```python\ndef f(): pass\n```\n```python\nf()\n```", "f", "def f(): pass\n"),
        ("```\nx = 1\n```\n```\nThis is no program, is it?\n```", "", "x = 1\n"),
        ("```cpp\nint main() {}\n```", "", None),
        ("<think>```python\nwrong = input()\n```</think>```py\nright = input()\n```", "", "right = input()\n"),
        ("<think>```python\nx = input()\n```", "", None),
        ("```python\nprint(input())", "", "print(input())"),
        ("I do not know.", "", None),
        ("", "", None),
        ("~~~python\nprint('```')\n~~~", "", "print('```')\n"),
    ],
)
def test_which_program_is_meant(output: str, function: str, program: str | None) -> None:
    assert program_of(output, function) == program


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n", "1 2", True), ("1  2", "1 2", True), ("1\n2", "1 2", False), ("2 1", "1 2", False),
        ("0.3333333", "0.333333333", True), ("0.334", "0.333333333", False), ("1e9", "1000000000.5", True),
        ("3.0", "3", True), ("3.0000001", "3", False), ("nan", "1.0", False), ("inf", "1e400", False),
        ("1_0", "10", False), ("YES", "yes", False), ("", "", True), ("", "0", False), ("0\n0", "0", False),
        ("\u0663", "3", False),
    ],
)  # fmt: skip
def test_what_is_printed(printed: str, expected: str, same: bool) -> None:
    assert same_text(printed, expected) is same


@given(VALUES)
def test_a_value_is_the_same_as_itself_after_json(value: object) -> None:
    assert same_value(read_json(json.dumps(value)), value)


@given(st.lists(st.integers(), min_size=1), st.data())
def test_a_list_with_one_other_number_is_another(value: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(value) - 1))
    other = [*value[:place], value[place] + data.draw(st.integers(1, 9)), *value[place + 1 :]]
    assert not same_value(other, value)
    assert not same_text(" ".join(map(str, other)), " ".join(map(str, value)))


def test_integers_of_any_length() -> None:
    digits = "7" * 5000
    assert read_json(digits) == Decimal(digits)
    assert same_value(read_json(digits), read_json(digits))
    assert not same_value(read_json(digits), read_json(digits[:-1] + "8"))


def test_partial_credit_is_the_share_of_the_tests_passed() -> None:
    tests = {"inputs": ["1", "2", "3", "4"], "outputs": ["1", "2", "0", "4"]}
    verdict = judge("```python\nprint(input())\n```", code(tests, '{"partial": true}'))
    assert (verdict.verdict, verdict.score) == ("wrong", 0.75)
    assert verdict.reason == "wrong output (test 3 of 4)"
    assert judge("```python\nprint(input())\n```", code(tests)).score == 0


def test_the_right_text_and_then_an_error_is_wrong() -> None:
    verdict = judge("```python\nprint(input())\n1/0\n```", code({"inputs": ["1"], "outputs": ["1"]}))
    assert verdict.reason == "runtime_error: ZeroDivisionError: division by zero (test 1 of 1)"


def test_a_forged_result_is_only_another_value() -> None:
    tests = {"fn_name": "f", "inputs": ["1"], "outputs": ["10"]}
    forged = "```python\nimport os\nos.write(3, b'true')\nos._exit(0)\ndef f(x): pass\n```"
    assert judge(forged, code(tests)).verdict == "wrong"


@pytest.mark.parametrize("metadata", ['{"time_limit": 0}', '{"time_limit": 1000}', '{"memory_limit": "much"}'])
def test_limits_of_a_row_that_are_none(metadata: str) -> None:
    verdict = judge("```python\nprint(1)\n```", code({"inputs": [""], "outputs": ["1"]}, metadata))
    assert (verdict.verdict, verdict.reason.partition(":")[0]) == ("error", "bad_gold")
