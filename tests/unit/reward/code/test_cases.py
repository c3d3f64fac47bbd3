"""Real reports of code rewards that failed, run in the sandbox: forms, limits, escapes, reward hacks, bad tests."""

import json
import time
from pathlib import Path

import pytest

from common.messages import Task
from services.reward.limits import Limits
from services.reward.worker import judge

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]
LIMITS = Limits(case_s=1.0)
REASONS = {"output_or_timeout": ("output", "timeout")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_the_verdict_is_right_and_nothing_is_left(case: dict) -> None:
    expected = case["expect"]
    forbidden = Path(expected.get("forbid_path", "/nowhere"))
    start = time.monotonic()
    verdict = judge(case["output"], Task(verifier="code", tests=json.dumps(case["tests"])), LIMITS)
    assert time.monotonic() - start < expected.get("max_seconds", 20)
    assert not forbidden.exists()
    if expected["passed"] is not None:
        assert (verdict.verdict == "correct") is expected["passed"], verdict
    if reason := expected.get("reason"):
        assert verdict.reason.startswith(REASONS.get(reason, reason)), verdict
    if expected.get("invalid_tests"):
        assert (verdict.verdict, verdict.reason) == ("error", "bad_gold: there are no tests")
