"""The pool of verifiers for the event loop: `await pool.judge(output, task)` never blocks it.

judge --(not judged before: cache.py; at most `queue_limit` wait)--> gate.py --> one thread per worker --> workers.py
                                                                   ^ starved or evicted: again, behind all that wait

The queue has several levels, as that of an operating system: what computes for long yields to the others, is stopped,
and in the end gives its worker to them and is asked again later. So inputs that hang hold up nobody, and an answer that
only is harder than most is judged as soon as there is time for it.

Functions of the user (`python:...`) run only if the configuration names them: a task comes over a socket.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Counter, Gauge, Histogram

from common.errors import UserError
from common.messages import PYTHON, VERIFIERS, Task, Verdict
from services.reward.cache import HITS, VerdictCache
from services.reward.gate import Gate
from services.reward.limits import Limits
from services.reward.turns import LEVELS, Turn
from services.reward.verifiers import TIMEOUT, UNUSABLE, UnusableError, error
from services.reward.workers import EVICTED, STARVED, Workers

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
RECYCLE_BYTES = 512 << 20


class Pool:
    """Judges outputs in worker processes; made by `open_pool`."""

    def __init__(
        self, workers: Workers, threads: ThreadPoolExecutor, gate: Gate, queue_limit: int, *,
        functions: Sequence[str] = (), cache_size: int = 0,
    ) -> None:  # fmt: skip
        """Use workers that are ready, with as many threads and places in the gate."""
        self._gate = gate
        self._workers = workers
        self._threads = threads
        self._room = asyncio.Semaphore(queue_limit)
        self._functions = frozenset(functions)
        self._cache = VerdictCache(cache_size)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._workers.pids

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The verdict of one output. Waits for room in the queue and for a worker, unless it was given before."""
        name = task.verifier
        if name.startswith(PYTHON) and name not in self._functions:
            return error(f"{UNUSABLE}: `{name}` is asked for, but [reward] functions does not list it")
        key = self._cache.key(output, task)
        verdict = self._cache.find(key)
        if verdict is not None:
            HITS.labels(name).inc()
        else:
            verdict = await self._judged(output, task)
            self._cache.keep(key, verdict)
        VERDICTS.labels(label(name), verdict.verdict).inc()
        return verdict

    async def _judged(self, output: str, task: Task) -> Verdict:
        async with self._room:
            WAITING.inc()
            try:
                verdict = await self._asked(output, task)
            finally:
                WAITING.dec()
        count(label(task.verifier), verdict)
        return verdict

    async def _asked(self, output: str, task: Task) -> Verdict:
        loop = asyncio.get_running_loop()
        turn = Turn(level=0)
        while True:
            async with self._gate.inside(turn.level):
                verdict = await loop.run_in_executor(self._threads, self._workers.judge, output, task, turn)
            if verdict.reason == EVICTED:
                turn = Turn(turn.level)
            elif verdict.reason == STARVED and turn.level < LEVELS - 1:
                turn = Turn(turn.level + 1)
            else:
                return verdict


@contextlib.asynccontextmanager
async def open_pool(
    workers: int, *, timeout_s: float, memory_bytes: int, recycle_after: int, queue_limit: int,
    recycle_bytes: int = RECYCLE_BYTES, functions: Sequence[str] = (), cache_size: int = 0,
    limits: Limits | None = None,
) -> AsyncIterator[Pool]:  # fmt: skip
    """A pool for the length of the block; its workers are started first and killed at the end."""
    threads, gate = ThreadPoolExecutor(workers, thread_name_prefix="verifier"), Gate(workers)
    try:
        processes = await asyncio.to_thread(
            Workers, workers, timeout_s=timeout_s, memory_bytes=memory_bytes, recycle_after=recycle_after,
            recycle_bytes=recycle_bytes, load=functions, limits=limits, outside=lambda: gate.lowest,
        )  # fmt: skip
    except UnusableError as problem:
        raise UserError(f"[reward] functions: {problem}") from problem
    try:
        yield Pool(processes, threads, gate, queue_limit, functions=functions, cache_size=cache_size)
    finally:
        processes.close()
        threads.shutdown(wait=False, cancel_futures=True)


def count(verifier: str, verdict: Verdict) -> None:
    """Show how long a verification took and how it failed, if it did."""
    SECONDS.labels(verifier).observe(verdict.seconds)
    if verdict.verdict == "wrong" and verdict.reason.startswith(TIMEOUT):
        TIMEOUTS.labels(verifier).inc()
    if verdict.verdict == "error":
        ERRORS.labels(verifier, verdict.reason.partition(":")[0]).inc()


def label(name: str) -> str:
    """A verifier's name as a label: few values, whatever a task says."""
    if name.startswith(PYTHON):
        return "python"
    return name if name in VERIFIERS else "unknown"
