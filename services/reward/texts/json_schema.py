"""The verifier `json_schema`: the answer is JSON of that form and, if the row says so, with these values.

    {"answer": "{\\"name\\": \\"Ada\\"}", "metadata": {"schema": {"type": "object", "required": ["name", "born"]}}}

The JSON is the last fenced block of the answer (texts/response.py), else all of it, else what stands from its first
brace or bracket to its last. It must satisfy the schema (library jsonschema; a reference to another document is never
fetched). The gold answer, if there is one, is the JSON whose fields must be equal: score = share of its fields that
are; fields beyond those do not count. Correct is a score of 1 unless the metadata has `passing`.
"""

import json
from typing import Any

import jsonschema
import referencing

from common.messages import Task, Verdict
from services.reward.texts.response import passing, response, settings
from services.reward.verifiers import BadGoldError, graded, wrong

FENCE = "```"


class NotJsonError(Exception):
    """The text holds no JSON."""


def verify_json_schema(output: str, task: Task) -> Verdict:
    """Form, then values."""
    schema, wanted, enough = _schema(task), _gold(task), passing(task, 1.0)
    try:
        found = _of(response(output) or "")
    except (NotJsonError, RecursionError):
        return wrong("no JSON")
    validator = jsonschema.validators.validator_for(schema)(schema, registry=referencing.Registry())
    try:
        problem = next(validator.iter_errors(found), None)
    except referencing.exceptions.Unresolvable as error:
        raise BadGoldError("the schema refers to what is not in it") from error
    if problem is not None:
        return wrong(f"not of the form: {problem.validator} at {problem.json_path}"[:300])
    return graded(_share(wanted, found), passing=enough)


def _of(text: str) -> Any:
    """The JSON value of a text."""
    for candidate in _candidates(text):
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except ValueError:
            continue
    raise NotJsonError


def _candidates(text: str) -> list[str]:
    fenced = text.split(FENCE)[1::2] if text.count(FENCE) > 1 else []
    if fenced:
        block = fenced[text.count(FENCE) // 2 - 1]
        return [block.partition("\n")[2]]
    starts = [place for place in map(text.find, "{[") if place >= 0]
    return [text, text[min(starts, default=0) : max(map(text.rfind, "}]")) + 1]]


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _share(wanted: Any, found: Any) -> float:
    """Share of the fields of `wanted` that are equal in `found`."""
    if wanted is None:
        return 1.0
    if not isinstance(wanted, dict) or not wanted:
        return float(_same(wanted, found))
    has = found if isinstance(found, dict) else {}
    return sum(key in has and _same(value, has[key]) for key, value in wanted.items()) / len(wanted)


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _schema(task: Task) -> Any:
    schema = settings(task).get("schema")
    if schema is None and not task.gold:
        raise BadGoldError("there is neither a schema nor an answer")
    schema = {} if schema is None else schema
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except (jsonschema.SchemaError, AttributeError, TypeError) as error:
        raise BadGoldError(f"the schema is none ({str(error).splitlines()[0][:200]})") from error
    return schema


def _gold(task: Task) -> Any:
    if not task.gold:
        return None
    try:
        return json.loads(task.gold)
    except (ValueError, RecursionError) as error:
        raise BadGoldError("the answer is not JSON") from error
