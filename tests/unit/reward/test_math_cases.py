import json
from pathlib import Path
from typing import Any

import pytest

from services.reward.config import RewardConfig
from services.reward.offline import judged
from services.reward.rows import read

OWN = Path(__file__).parent / "cases_math.jsonl"
SHARED = Path(__file__).parents[4] / "shared" / "cases" / "math_dev.jsonl"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def wrong_verdicts(path: Path, *, workers: int = 2) -> list[str]:
    """Ids of the rows whose verdict is not the one that the file asks for."""
    rows = rows_of(path)
    verdicts = [verdict async for verdict in judged(read(path, "math"), RewardConfig(workers=workers))]
    assert len(verdicts) == len(rows)
    return [
        row["id"] for row, v in zip(rows, verdicts, strict=True) if (v.verdict == "correct") != bool(row["correct"])
    ]


@pytest.mark.parametrize("workers", [1, 4])
async def test_every_case_gets_its_verdict_whatever_the_number_of_workers(tmp_path: Path, workers: int) -> None:
    rows = rows_of(OWN)
    boxed = [{"output": f"So the answer is \\boxed{{{row.get('answer')}}}."} | row for row in rows]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in boxed))
    assert await wrong_verdicts(path, workers=workers) == []


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not on this machine")
async def test_the_shared_cases_get_their_verdicts() -> None:
    assert await wrong_verdicts(SHARED) == []
