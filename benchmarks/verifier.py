"""Verifications a second, and what inputs that hang do to the others.

    python benchmarks/verifier.py [--answers 4000] [--workers 64] [--timeout-s 1] [--json]

Answers to mathematical problems of several kinds, half of them wrong, judged by `math` in the worker pool, all at once
as the groups of several rollouts would bring them. A share of the inputs is poison: a pattern that Python's `re` takes
years to search, without ever giving control back; it ends when the pool kills its worker. Poison p % of the inputs
means that p / (100 - p) * timeout_s seconds of a worker are lost for every answer judged, so workers have to be many;
they share the memory that they do not write to, and those that hang yield the processor to the others.

    per_second_and_core   verdicts of `math`, without poison, as many workers as cores
    overhead_seconds      of the pool, beyond the time in the verifier, one answer at a time
    poison_P              with P % of poison: answers a second (not counting poison) until 95 % of them are judged,
                          `slowdown` against no poison with as many workers, seconds until the last (the hardest wait
                          behind the poison, see services/reward/pool.py), p50 and p99 of the seconds in the verifier,
                          answers that got no verdict, poison called wrong and error, workers alive after
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from common.messages import Task, Verdict
from services.reward.pool import Pool, open_pool

POISON = ("a" * 64 + "b", Task(verifier="regex", gold="^(a+)+$"))
KINDS = (
    ("{n}", "{n}", "{m}"), (r"\frac{{{n}}}{{{m}}}", "{n}/{m}", "{m}/{n}"), ("{n}.5", "{n}.50", "{n}.05"),
    (r"{n}\sqrt{{{m}}}", r"\sqrt{{{m}}}*{n}", r"\sqrt{{{n}}}"), ("x^2+{n}x+{m}", "{m}+{n}x+x^2", "x^2-{n}x+{m}"),
    ("({n}, {m})", "({n},{m})", "({m},{n})"), (r"{n}\%", "{n}", "{m}"), ("[{n}, {n}{m})", "[{n},{n}{m})", "({n},{m}]"),
)  # fmt: skip
"""(gold, right answer, wrong answer)."""

Case = tuple[str, Task]


def cases(number: int, *, poison: float) -> list[Case]:
    """Inputs in a fixed random order, a share of them poison beyond the `number`."""
    rng = random.Random(0)
    found = []
    for place in range(number):
        gold, right, wrong = KINDS[place % len(KINDS)]
        n, m = rng.randrange(2, 10_000), rng.randrange(2, 10_000)
        text = (right if rng.random() < 0.5 else wrong).format(n=n, m=m)
        output = f"We compute step by step.\n\nThe final answer is $\\boxed{{{text}}}$."
        found.append((output, Task(verifier="math", gold=gold.format(n=n, m=m))))
    found += [POISON] * round(number * poison / (1 - poison))
    rng.shuffle(found)
    return found


async def run(pool: Pool, inputs: Sequence[Case]) -> dict[str, float]:
    """All inputs at once: how fast and in what time the answers that are no poison were judged."""
    start = time.perf_counter()

    async def judge(case: Case) -> tuple[bool, Verdict, float, float]:
        begun = time.perf_counter()
        verdict = await pool.judge(*case)
        now = time.perf_counter()
        return case is POISON, verdict, now - begun, now - start

    results = await asyncio.gather(*map(judge, inputs))
    answers = [result for result in results if not result[0]]
    assert all(verdict.verdict != "correct" for is_poison, verdict, _, _ in results if is_poison)
    seconds = [verdict.seconds for _, verdict, _, _ in answers]
    ends = sorted(end for _, _, _, end in answers)
    most = round(0.95 * len(ends))
    return {
        "per_second": most / ends[most - 1], "last_seconds": ends[-1],
        "not_judged": sum(v.verdict == "error" or v.reason == "timeout" for _, v, _, _ in answers),
        "poison_wrong": sum(v.verdict == "wrong" for is_poison, v, _, _ in results if is_poison),
        "poison_error": sum(v.verdict == "error" for is_poison, v, _, _ in results if is_poison),
        "p50": statistics.median(seconds), "p99": statistics.quantiles(seconds, n=100)[98],
    }  # fmt: skip


async def alone(pool: Pool, inputs: Sequence[Case]) -> list[float]:
    """Seconds of each call beyond those in the verifier, one at a time."""
    found = []
    for case in inputs:
        start = time.perf_counter()
        verdict = await pool.judge(*case)
        found.append(time.perf_counter() - start - verdict.seconds)
    return found


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def measure(number: int, workers: int, timeout_s: float) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    settings = {"timeout_s": timeout_s, "memory_bytes": 2 << 30, "recycle_after": 100_000, "queue_limit": 1 << 20}
    async with open_pool(cores, **settings) as pool:  # type: ignore[arg-type]
        await run(pool, cases(200, poison=0.0))  # the first use of a library
        plain = await run(pool, cases(number, poison=0.0))
        overhead = await alone(pool, [(r"\boxed{7}", Task(verifier="exact", gold="7"))] * 1000)
    result: dict[str, Any] = {
        "answers": number, "cores": cores, "per_second_and_core": plain["per_second"] / cores,
        "p50_seconds": plain["p50"], "p99_seconds": plain["p99"],
        "overhead_seconds": statistics.median(overhead), "workers": workers, "timeout_s": timeout_s,
    }  # fmt: skip
    undisturbed = 0.0
    for percent in (0, 1, 10):
        async with open_pool(workers, **settings) as pool:  # type: ignore[arg-type]
            await pool.judge("a", POISON[1])
            figures = await run(pool, cases(number, poison=percent / 100))
            undisturbed = undisturbed or figures["per_second"]
            alive = sum(map(is_alive, pool.pids))
        result[f"poison_{percent}"] = figures | {
            "slowdown": undisturbed / figures["per_second"], "workers_after": alive
        }  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the worker pool of the verifiers.")
    parser.add_argument("--answers", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=64, help="for the runs with poison")
    parser.add_argument("--timeout-s", type=float, default=1.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.answers, arguments.workers, arguments.timeout_s))
    lines = [f"{name:>24}  {value}" for name, value in result.items()]
    print(json.dumps(result) if arguments.json else "\n".join(lines))


if __name__ == "__main__":
    main()
