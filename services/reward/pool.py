"""The pool of verifiers for the event loop: `await pool.judge(output, task)` never blocks it.

judge --(at most `queue_limit` wait)--> one thread per worker --> workers.py
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Counter, Gauge, Histogram

from common.messages import VERIFIERS, Task, Verdict
from services.reward.verifiers import TIMEOUT
from services.reward.workers import Workers

SECONDS = Histogram(
    "dapo_reward_verifier_seconds",
    "Time in the verifier, by verifier.",
    ["verifier"],
    buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
VERDICTS = Counter("dapo_reward_verdicts_total", "Verdicts given.", ["verifier", "verdict"])
TIMEOUTS = Counter("dapo_reward_timeouts_total", "Outputs that broke the time limit, or would have.", ["verifier"])
ERRORS = Counter("dapo_reward_errors_total", "Verdicts `error`, by cause.", ["verifier", "cause"])
WAITING = Gauge("dapo_reward_queue_length", "Outputs that wait for a worker or are with one.")


class Pool:
    """Judges outputs in worker processes; made by `open_pool`."""

    def __init__(self, workers: Workers, threads: ThreadPoolExecutor, queue_limit: int) -> None:
        """Use workers that are ready, with as many threads."""
        self._workers = workers
        self._threads = threads
        self._room = asyncio.Semaphore(queue_limit)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._workers.pids

    async def judge(self, output: str, task: Task) -> Verdict:
        """The verdict of one output. Waits for room in the queue and for a worker."""
        async with self._room:
            WAITING.inc()
            try:
                loop = asyncio.get_running_loop()
                verdict = await loop.run_in_executor(self._threads, self._workers.judge, output, task)
            finally:
                WAITING.dec()
        _count(task.verifier if task.verifier in VERIFIERS else "unknown", verdict)
        return verdict


@contextlib.asynccontextmanager
async def open_pool(
    workers: int, *, timeout_s: float, memory_bytes: int, recycle_after: int, queue_limit: int
) -> AsyncIterator[Pool]:
    """A pool for the length of the block; its workers are started first and killed at the end."""
    threads = ThreadPoolExecutor(workers, thread_name_prefix="verifier")
    processes = await asyncio.to_thread(
        Workers, workers, timeout_s=timeout_s, memory_bytes=memory_bytes, recycle_after=recycle_after
    )
    try:
        yield Pool(processes, threads, queue_limit)
    finally:
        processes.close()
        threads.shutdown(wait=False, cancel_futures=True)


def _count(verifier: str, verdict: Verdict) -> None:
    SECONDS.labels(verifier).observe(verdict.seconds)
    VERDICTS.labels(verifier, verdict.verdict).inc()
    if verdict.reason.startswith(TIMEOUT):
        TIMEOUTS.labels(verifier).inc()
    if verdict.verdict == "error":
        ERRORS.labels(verifier, verdict.reason.partition(":")[0]).inc()
