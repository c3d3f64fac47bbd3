import json
from typing import Any

import pytest

from tests.unit.learner import golden


def flat(value: Any) -> list[float]:
    """All numbers of nested dictionaries and lists, in order."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in flat(value[key])]
    return [number for item in value for number in flat(item)] if isinstance(value, list | tuple) else [float(value)]


@pytest.mark.parametrize("case", golden.CASES)
def test_a_step_gives_the_recorded_values(case: str) -> None:
    recorded, found = json.loads(golden.PATH.read_text())[case], golden.values(case)
    assert recorded.keys() == found.keys()
    for key in recorded:
        assert flat(found[key]) == pytest.approx(flat(recorded[key]), rel=1e-7, abs=1e-10), key


def test_the_cases_differ_from_each_other() -> None:
    recorded = json.loads(golden.PATH.read_text())
    losses = {round(recorded[case]["metrics"]["loss"], 9) for case in golden.CASES}
    assert len(losses) == len(golden.CASES)
