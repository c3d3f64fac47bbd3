"""Killable worker processes, from any thread: `judge` borrows one, asks it, and replaces it if it is lost.

    judge(output, task) --> idle worker --(its time passed: kill -9)--> wrong "timeout"
                                        --(the same, but it hardly got the processor)--> error "starved"
                                        --(others need the worker first)--> error "evicted"
                                        --(died by itself or from outside)--> the next worker, once --> error

Workers are forked from a zygote that has the verifiers loaded, so a replacement takes milliseconds. A verifier that is
asked for the first time is imported there, outside of anybody's time limit, and workers forked before are replaced
when they are to use it. Workers are also replaced after `recycle_after` requests, and when they have grown by
`recycle_bytes`, because computer algebra keeps caches.
"""

import os
import threading
from collections.abc import Callable, Sequence

import msgspec
from prometheus_client import Counter, Gauge

from common.messages import Task, Verdict
from services.reward.code.sandbox import sweep
from services.reward.handle import Lost, Worker
from services.reward.limits import Limits
from services.reward.turns import LEVELS, Turn, Turns
from services.reward.usual import Usual
from services.reward.verifiers import CODE, MEMORY, TIMEOUT, UNUSABLE, UnusableError, error, is_local, wrong
from services.reward.worker import Request
from services.reward.zygote import Zygote

LOOK_EVERY = 16
"""Requests between two looks at the memory of a worker."""
STARVED, EVICTED = "starved", "evicted"

RESTARTS = Counter("dapo_reward_worker_restarts_total", "Worker processes replaced.", ["cause"])
ALIVE = Gauge("dapo_reward_workers", "Worker processes alive.")


class Workers:
    """A fixed number of workers; `judge` may be called from as many threads."""

    def __init__(
        self, number: int, *, timeout_s: float, memory_bytes: int, recycle_after: int, recycle_bytes: int,
        load: Sequence[str] = (), limits: Limits | None = None, outside: Callable[[], int] = lambda: LEVELS,
    ) -> None:  # fmt: skip
        """Start all workers and wait until they are ready; raises `UnusableError` if a verifier to `load` is none.

        `outside` is the lowest level of the requests that wait for a worker, `LEVELS` if none does.
        """
        self._timeout_s = timeout_s
        self._limits = limits or Limits()
        self._memory_bytes = memory_bytes
        self._recycle_after = recycle_after
        self._recycle_bytes = recycle_bytes
        self._lock = threading.Lock()
        self._turns = Turns(len(os.sched_getaffinity(0)), outside)
        self._idle: list[Worker] = []
        """By the time of their last answer; those that have not judged yet come first."""
        self._usual = Usual()
        self._zygote = Zygote()
        try:
            for name in load:
                self._zygote.load(name)
        except UnusableError:
            self._zygote.close()
            raise
        self._alive = [Worker(self._zygote, memory_bytes) for _ in range(number)]
        for worker in self._alive:
            worker.wait_until_ready()
            self._idle.append(worker)
        ALIVE.inc(number)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        with self._lock:
            return [worker.pid for worker in self._alive]

    def judge(self, output: str, task: Task, turn: Turn) -> Verdict:
        """The verdict of one output; a worker that died costs one more try, a second death is an error.

        Those of a lower level go first, and its own may rise. `STARVED` or `EVICTED` if it shall be asked again.
        """
        timeout_s = self._limits.longest_s if task.verifier == CODE else self._timeout_s
        request = Request(output=output, task=task, timeout_s=timeout_s, limits=self._limits)
        try:
            self._load(task.verifier)
        except UnusableError as problem:
            return error(f"{UNUSABLE}: {problem}")
        for _ in range(2):
            answer = self._ask(request, turn)
            if isinstance(answer, Verdict):
                return answer
            if answer.cause != "died":
                verdict = wrong(TIMEOUT) if answer.cause == "timeout" else error(answer.cause)
                return msgspec.structs.replace(verdict, seconds=timeout_s)
        return error("worker died")

    def _ask(self, request: Request, turn: Turn) -> Verdict | Lost:
        """Waits for its turn. There is a worker for every thread, so it does not wait for one."""
        verifier = request.task.verifier
        self._turns.take(turn)
        try:
            worker = self._take(verifier)
            if worker.is_gone:
                worker = self._replace(worker, "died")
            elif not self._can_judge(worker, verifier):
                worker = self._replace(worker, "older")
            answer = worker.ask(request, self._turns, turn, self._usual.seconds(verifier))
            self._turns.give(turn)
            if isinstance(answer, Verdict):
                self._usual.learn(verifier, worker.used_s)
                kept = self._after(worker, answer)
            else:
                kept = self._replace(worker, answer.cause)
            with self._lock:
                self._idle.insert(len(self._idle) if kept is worker else 0, kept)
            return answer
        finally:
            self._turns.end(turn)

    def _take(self, verifier: str) -> Worker:
        """The idle worker that judged by this verifier last, else the one that judged longest ago, or never."""
        with self._lock:
            places = reversed(range(len(self._idle)))
            return self._idle.pop(next((place for place in places if self._idle[place].judged == verifier), 0))

    def close(self) -> None:
        """Kill all workers."""
        with self._lock:
            for worker in self._alive:
                worker.kill()
            ALIVE.dec(len(self._alive))
            self._alive = []
            self._zygote.close()
        if CODE in self._zygote.loaded:
            sweep()

    def _after(self, worker: Worker, verdict: Verdict) -> Worker:
        if verdict.reason == MEMORY:
            return self._replace(worker, "memory")
        if worker.requests % LOOK_EVERY == 0 and worker.grown_bytes > self._recycle_bytes:
            return self._replace(worker, "grown")
        return self._replace(worker, "recycled") if worker.requests >= self._recycle_after else worker

    def _load(self, name: str) -> None:
        """Import a verifier that exists where workers are forked, unless it is there."""
        if name not in self._zygote.loaded and is_local(name):
            self._zygote.load(name)

    @staticmethod
    def _can_judge(worker: Worker, name: str) -> bool:
        return name in worker.knows or not is_local(name)

    def _replace(self, worker: Worker, cause: str) -> Worker:
        """Kill a worker and start another in its place."""
        RESTARTS.labels(cause).inc()
        with self._lock:
            if worker not in self._alive:
                return worker
            worker.kill()
            new = Worker(self._zygote, self._memory_bytes)
            self._alive[self._alive.index(worker)] = new
        new.wait_until_ready()
        return new
