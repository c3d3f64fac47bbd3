"""`dapo verify --verifier NAME FILE.jsonl`: judge a file of outputs, one verdict a line in the order of the file.

{"id", "output", "gold"}  ->  {"id", "verdict", "score", "reason", "seconds"}          summary on stderr
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.messages import VERIFIERS, Task, Verdict
from services.reward.pool import Pool, open_pool

MEMORY_BYTES, RECYCLE_AFTER = 2 << 30, 5000
IN_WORK_PER_WORKER = 4


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One row of the file."""

    id: Any
    output: str
    task: Task


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the file; 0 when every row has a verdict, 2 for a mistake of the user."""
    parser = argparse.ArgumentParser(prog="dapo verify", description="Judge a JSONL file of answers.")
    parser.add_argument("file", type=Path, help='rows of {"id", "output", "gold"}')
    parser.add_argument("--verifier", choices=VERIFIERS, default="math")
    parser.add_argument("--workers", type=int, default=2, help="verifier processes")
    parser.add_argument("--timeout-s", type=float, default=5.0, help="wall-clock limit of one verification")
    arguments = parser.parse_args(argv)
    try:
        answers = read(arguments.file, arguments.verifier)
        verdicts = asyncio.run(_print_all(answers, workers=arguments.workers, timeout_s=arguments.timeout_s))
    except UserError as error:
        print(f"dapo verify: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(summary(verdicts), file=sys.stderr)
    return 0


def read(path: Path, verifier: str) -> list[Answer]:
    """The rows of a file; raises `UserError` naming the row that cannot be read."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"answers file {path} cannot be read: {error.strerror}") from error
    return [_answer(path, number, line, verifier) for number, line in enumerate(lines, start=1) if line.strip()]


async def judged(answers: Sequence[Answer], *, workers: int, timeout_s: float) -> AsyncIterator[Verdict]:
    """The verdicts in the order of the answers, each as soon as it and those before it are known."""
    settings = {"timeout_s": timeout_s, "memory_bytes": MEMORY_BYTES, "recycle_after": RECYCLE_AFTER}
    async with open_pool(workers, **settings, queue_limit=IN_WORK_PER_WORKER * workers) as pool:  # type: ignore[arg-type]
        tasks = [asyncio.create_task(_judge(pool, answer)) for answer in answers]
        for task in tasks:
            yield await task


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line: counts, time-outs, and how long a verification took."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    timeouts = sum(verdict.reason.startswith("timeout") for verdict in verdicts)
    p50, p99 = np.percentile([verdict.seconds for verdict in verdicts] or [0.0], [50, 99])
    return (
        f"{len(verdicts)} verified: {counts['correct']} correct, {counts['wrong']} wrong, {counts['error']} errors, "
        f"{timeouts} time-outs; seconds p50 {p50:.4f}, p99 {p99:.4f}"
    )


async def _print_all(answers: Sequence[Answer], *, workers: int, timeout_s: float) -> list[Verdict]:
    verdicts: list[Verdict] = []
    async for verdict in judged(answers, workers=workers, timeout_s=timeout_s):
        fields = {"id": answers[len(verdicts)].id, "verdict": verdict.verdict, "score": verdict.score}
        print(json.dumps(fields | {"reason": verdict.reason, "seconds": round(verdict.seconds, 6)}), flush=True)
        verdicts.append(verdict)
    return verdicts


async def _judge(pool: Pool, answer: Answer) -> Verdict:
    return await pool.judge(answer.output, answer.task)


def _answer(path: Path, number: int, line: bytes, verifier: str) -> Answer:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}, row {number}: it is not JSON ({error}); mend or remove it") from error
    if not isinstance(row, dict) or not isinstance(row.get("output"), str):
        raise UserError(f"{path}, row {number}: `output` is missing or not a text; give the model's answer")
    gold = row.get("gold")
    text = "" if gold is None else gold if isinstance(gold, str) else json.dumps(gold)
    return Answer(id=row.get("id", number), output=row["output"], task=Task(verifier=verifier, gold=text))
