import json
from typing import Any

import pytest

from common.messages import Task, Verdict
from services.reward.verifiers import BadGoldError

pytest.importorskip("jsonschema")

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


def judged(output: str, gold: str = "", **metadata: Any) -> Verdict:
    from services.reward.texts.json_schema import verify_json_schema

    task = Task(verifier="json_schema", gold=gold, metadata=json.dumps({"schema": PERSON} | metadata))
    return verify_json_schema(output, task)


@pytest.mark.parametrize(
    "output",
    [
        '{"name": "Ada", "born": 1815}', 'Here it is:\n```json\n{"name": "Ada", "born": 1815}\n```\nDone.',
        '<think>{"name": 1}</think><answer>{"name": "Ada", "born": 1815}</answer>',
        'The record is {"name": "Ada", "born": 1815}.',
    ],
)  # fmt: skip
def test_json_of_the_form_is_correct_wherever_it_stands(output: str) -> None:
    assert judged(output).verdict == "correct"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no JSON"), ("no braces", "no JSON"), ('{"name": "Ada"', "no JSON"), ('{"name": "Ada"}', "required at $"),
        ('{"name": "Ada", "born": "1815"}', "type at $.born"), ('{"name": "Ada", "born": NaN}', "no JSON"),
        ('{"name": "Ada", "born": 1815, "x": 1}', "additionalProperties"), ("[" * 100_000, "no JSON"),
        ("[]", "type at $"),
        ('{"name": "Ada", "born": 1815} {"name": "Bob", "born": 1}', "no JSON"),
        ('{"name": "Ada", "born": ' + "9" * 5000 + "}", "no JSON"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_form_is_wrong(output: str, reason: str) -> None:
    verdict = judged(output)
    assert verdict.verdict == "wrong"
    assert reason in verdict.reason


def test_the_score_is_the_share_of_the_fields_that_are_equal() -> None:
    gold = '{"name": "Ada", "born": 1815}'
    half = judged('{"name": "Ada", "born": 1816}', gold)
    assert (half.verdict, half.score) == ("wrong", 0.5)  # 1 of 2 fields
    assert judged('{"name": "Ada", "born": 1816}', gold, passing=0.5).verdict == "correct"
    assert judged('{"name": "Ada", "born": 1815.0}', gold).verdict == "correct"
    assert judged('{"name": "Ada"}', gold).score == 0.0  # not of the form: nothing counts


def test_true_is_not_one() -> None:
    assert judged('{"n": true}', '{"n": 1}', schema={}).score == 0.0
    assert judged('{"n": {"a": [1, null]}}', '{"n": {"a": [1.0, null]}}', schema={}).score == 1.0


@pytest.mark.parametrize(
    ("gold", "metadata"),
    [
        ("", {"schema": None}), ("{broken", {}), ("", {"schema": {"type": "thing"}}), ("", {"schema": 7}),
        ("", {"schema": {"$ref": "http://127.0.0.1:9/other.json"}}), ("", {"passing": 2}),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_judged_is_an_error_and_nothing_is_fetched(gold: str, metadata: dict[str, Any]) -> None:
    with pytest.raises(BadGoldError):
        judged('{"name": "Ada", "born": 1815}', gold, **metadata)
