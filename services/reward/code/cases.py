"""The tests of a row, in the forms of APPS, TACO and LiveCodeBench, as one.

    {"inputs": [...], "outputs": [...], "fn_name"?: "f"}                      APPS, TACO
    [{"input": ..., "output": ..., "testtype"?: "stdin" | "functional"}, ...]  LiveCodeBench; name of the function in
                                                                                the metadata, `func_name`

Without a function's name a test is a text for the standard input and the text that must be printed. With one, an
input is the list of arguments, or a text with one JSON value a line; an output is the value that must be returned.

Not read: LiveCodeBench's compressed private tests, which are a pickle.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.messages import Task
from services.reward.code.values import read_json
from services.reward.texts.response import settings
from services.reward.verifiers import BadGoldError


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    stdin: str
    """What is read; empty for a function."""
    arguments: Sequence[Any]
    expected: tuple[Any, ...]
    """What may come of it: texts to print, or values to return; any of them is right."""


@dataclass(frozen=True, slots=True)
class Cases:
    """All tests of a row."""

    function: str
    """Its name; empty for programs that read and print."""
    cases: Sequence[Case]


def cases_of(task: Task) -> Cases:
    """The tests of a task; raises `BadGoldError` if it has none, or none that can be read."""
    try:
        raw = json.loads(task.tests or task.gold or "null")
    except (ValueError, RecursionError) as error:
        raise BadGoldError(f"the tests are not JSON ({error})") from error
    inputs, outputs, function = _columns(raw)
    function = function or str(settings(task).get("func_name") or "")
    if not inputs:
        raise BadGoldError("there are no tests")
    if len(inputs) != len(outputs):
        raise BadGoldError(f"{len(inputs)} inputs, but {len(outputs)} outputs")
    make = _call if function else _print
    return Cases(function, [make(given, wanted) for given, wanted in zip(inputs, outputs, strict=True)])


def _columns(raw: Any) -> tuple[Sequence[Any], Sequence[Any], str]:
    if isinstance(raw, Mapping):
        inputs, outputs = raw.get("inputs", []), raw.get("outputs", [])
        if isinstance(inputs, list) and isinstance(outputs, list):
            return inputs, outputs, str(raw.get("fn_name") or "")
    elif isinstance(raw, list) and all(isinstance(row, Mapping) and {"input", "output"} <= set(row) for row in raw):
        named = [row.get("fn_name") or (row.get("metadata") or {}).get("func_name") for row in raw]
        return [row["input"] for row in raw], [row["output"] for row in raw], str(next(filter(None, named), ""))
    raise BadGoldError("the tests are neither {inputs, outputs} nor a list of {input, output}")


def _print(given: Any, wanted: Any) -> Case:
    return Case(stdin=_lines(given), arguments=(), expected=(_lines(wanted),))


def _lines(value: Any) -> str:
    """A text; APPS has some as lists of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in value)
    return json.dumps(value)


def _call(given: Any, wanted: Any) -> Case:
    if isinstance(given, str):
        arguments = [_value(line, "an input") for line in given.split("\n") if line.strip()]
    else:
        arguments = [_with_integer_keys(value) for value in (given if isinstance(given, list) else [given])]
    if isinstance(wanted, str):
        return Case(stdin="", arguments=arguments, expected=_read_or_said(wanted, strict=isinstance(given, str)))
    sole = (wanted[0],) if isinstance(wanted, list) and len(wanted) == 1 else ()
    return Case(stdin="", arguments=arguments, expected=(wanted, *sole))


def _read_or_said(wanted: str, *, strict: bool) -> tuple[Any, ...]:
    """What a text asks for: the JSON value in it; in APPS, whose values are no JSON texts, the text itself."""
    if strict:
        return (_value(wanted, "an output"),)
    try:
        return (wanted, read_json(wanted))
    except ValueError:
        return (wanted,)


def _value(text: str, what: str) -> Any:
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise BadGoldError(f"{what} of a function's test is not JSON: {text[:60]!r}") from error


def _with_integer_keys(value: Any) -> Any:
    """An object whose keys are all integers was a dictionary with integers as keys before it was JSON."""
    if isinstance(value, dict) and value and all(key.lstrip("-").isdecimal() for key in value):
        return {int(key): item for key, item in value.items()}
    return value
