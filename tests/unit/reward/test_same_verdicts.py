"""One text, one verdict: whatever the number of workers, the order, the thread or the process it is asked from."""

import asyncio
import json
import random
import subprocess
import sys
import threading
from pathlib import Path

from services.reward.config import RewardConfig
from services.reward.offline import judged
from services.reward.rows import Answer, read

CASES = Path(__file__).parent / "cases_math.jsonl"
NUMBER = 120


def answers(tmp_path: Path) -> list[Answer]:
    """Some of the cases, as boxes."""
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    rows = random.Random(0).sample(rows, NUMBER)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"output": rf"\boxed{{{row.get('answer')}}}"} | row) + "\n" for row in rows))
    return read(path)


async def verdicts(rows: list[Answer], *, workers: int, cache_size: int = 0) -> dict[str, tuple[str, float, str]]:
    """By id: verdict, score and reason."""
    config = RewardConfig(workers=workers, cache_size=cache_size)
    found = [verdict async for verdict in judged(rows, config)]
    return {str(row.id): (v.verdict, v.score, v.reason) for row, v in zip(rows, found, strict=True)}


async def test_with_one_worker_or_eight_in_any_order_with_or_without_the_cache(tmp_path: Path) -> None:
    rows = answers(tmp_path)
    expected = await verdicts(rows, workers=1)
    assert len(expected) == NUMBER
    shuffled = random.Random(1).sample(rows, NUMBER)
    assert await verdicts(shuffled, workers=8) == expected
    assert await verdicts([*rows, *shuffled], workers=2, cache_size=100) == expected


def test_from_threads_and_from_another_process(tmp_path: Path) -> None:
    rows = answers(tmp_path)[:40]
    found: list[dict[str, tuple[str, float, str]]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(verdicts(rows, workers=2)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output = subprocess.run(
        [sys.executable, "-m", "services.cli", "verify", str(tmp_path / "rows.jsonl")],
        capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    lines = [json.loads(line) for line in output.splitlines()[:40]]
    found.append({str(line["id"]): (line["verdict"], line["score"], line["reason"]) for line in lines})
    assert len(found) == 4
    assert all(one == found[0] for one in found)
