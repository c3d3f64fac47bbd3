"""Every example of docs/rewards.md is a row that can be trained on, and gets the verdict that it claims."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from services.filter.judging import Judging
from services.filter.schema import Row, parse
from services.reward.config import RewardConfig
from services.reward.judges import open_judges
from services.reward.remote.config import HttpConfig, JudgeConfig
from services.reward.scoring import judged
from tests.unit.reward.servers import completion, fake_server

PAGE = Path(__file__).parents[3] / "docs" / "rewards.md"
ROWS = [
    json.loads(line)
    for block in re.findall(r"^```jsonl\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    for line in block.splitlines()
]
POLITE = "python:tests.unit.reward.functions:polite"
VERIFIERS = {
    "math", "code", "exact", "regex", "choice", "json_schema", "classification", "bleu", "chrf", "rouge", "judge",
    "http", "reasoning_gym", POLITE,
}  # fmt: skip


def row_of(raw: dict[str, Any]) -> Row:
    row = parse(1, raw, judging=Judging(verifier="" if raw.get("verifier") or raw.get("data_source") else POLITE))
    assert isinstance(row, Row), row
    return row


def test_every_verifier_has_an_example() -> None:
    assert {row_of(raw).task.verifier for raw in ROWS} == VERIFIERS


async def test_every_example_gets_its_verdict(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    template = tmp_path / "judge.txt"
    template.write_text("{question} {gold} {output}")
    said: list[Any] = [""]

    def reply(*_: Any) -> tuple[int, str]:
        return completion(said[0]) if isinstance(said[0], str) else (200, json.dumps(said[0]))

    async with fake_server(reply) as server:
        config = RewardConfig(
            workers=1, functions=(POLITE,), http=HttpConfig(url=server.url),
            judge=JudgeConfig(url=server.url, model="m", template=str(template)),
        )  # fmt: skip
        async with open_judges(config, queue_limit=1) as judges:
            for raw in ROWS:
                said[0] = raw.get("reply", "")
                verdict = await judged(judges, raw["output"], row_of(raw).task, raw["prompt"], retries=0)
                assert (raw, verdict.verdict) == (raw, raw["verdict"]), verdict
                score = float(raw.get("score", verdict.verdict == "correct"))
                assert verdict.score == pytest.approx(score, abs=1e-4), raw
                assert verdict.scores == raw.get("scores", {}), raw
