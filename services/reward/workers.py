"""Killable worker processes, from any thread: `judge` borrows one, asks it, and replaces it if it is lost.

    judge(output, task) --> idle worker --(deadline passed: kill -9)--> wrong "timeout"
                                        --(the same, but it hardly got the processor)--> error "starved"
                                        --(died by itself or from outside)--> the next worker, once --> error

Workers are forked from a zygote that has the verifiers loaded, so a replacement takes milliseconds. A verifier that is
asked for the first time is imported there, outside of anybody's time limit, and workers forked before are replaced
when they are to use it. Workers are also replaced after `recycle_after` requests, and when they have grown by
`recycle_bytes`, because computer algebra keeps caches.
"""

import contextlib
import os
import threading
from collections.abc import Sequence

import msgspec
from prometheus_client import Counter, Gauge

from common.messages import Task, Verdict
from services.reward.code.sandbox import sweep
from services.reward.handle import Lost, Worker
from services.reward.limits import Limits
from services.reward.usual import Usual
from services.reward.verifiers import CODE, MEMORY, TIMEOUT, UNUSABLE, UnusableError, error, is_local, wrong
from services.reward.worker import Request
from services.reward.zygote import Zygote

LOOK_EVERY = 16
"""Requests between two looks at the memory of a worker."""
STARVED = "starved"

RESTARTS = Counter("dapo_reward_worker_restarts_total", "Worker processes replaced.", ["cause"])
ALIVE = Gauge("dapo_reward_workers", "Worker processes alive.")


class Workers:
    """A fixed number of workers; `judge` may be called from as many threads."""

    def __init__(
        self, number: int, *, timeout_s: float, memory_bytes: int, recycle_after: int, recycle_bytes: int,
        load: Sequence[str] = (), limits: Limits | None = None,
    ) -> None:  # fmt: skip
        """Start all workers and wait until they are ready; raises `UnusableError` if a verifier to `load` is none."""
        self._timeout_s = timeout_s
        self._limits = limits or Limits()
        self._memory_bytes = memory_bytes
        self._recycle_after = recycle_after
        self._recycle_bytes = recycle_bytes
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(len(os.sched_getaffinity(0)))
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

    def judge(self, output: str, task: Task, allowance_s: float) -> Verdict:
        """The verdict of one output; a worker that died costs one more try, a second death is an error.

        After `allowance_s` seconds of the processor, or what is usual for the verifier if that is more, the others go
        first; it may be `STARVED` then.
        """
        timeout_s = self._limits.longest_s if task.verifier == CODE else self._timeout_s
        request = Request(output=output, task=task, timeout_s=timeout_s, limits=self._limits)
        try:
            self._load(task.verifier)
        except UnusableError as problem:
            return error(f"{UNUSABLE}: {problem}")
        for _ in range(2):
            answer = self._ask(request, max(allowance_s, self._usual.seconds(task.verifier)))
            if isinstance(answer, Verdict):
                return answer
            if answer.cause != "died":
                verdict = wrong(TIMEOUT) if answer.cause == "timeout" else error(STARVED)
                return msgspec.structs.replace(verdict, seconds=timeout_s)
        return error("worker died")

    def _ask(self, request: Request, allowance_s: float) -> Verdict | Lost:
        """Waits for a slot. There is a worker for every thread, so it does not wait for one."""
        with contextlib.ExitStack() as slot:
            self._slots.acquire()
            slot.callback(self._slots.release)
            worker = self._take(request.task.verifier)
            if worker.is_gone:
                worker = self._replace(worker, "died")
            elif not self._can_judge(worker, request.task.verifier):
                worker = self._replace(worker, "older")
            answer = worker.ask(request, slot, allowance_s)
        if isinstance(answer, Verdict):
            self._usual.learn(request.task.verifier, worker.used_s)
            kept = self._after(worker, answer)
        else:
            kept = self._replace(worker, answer.cause)
        with self._lock:
            self._idle.insert(len(self._idle) if kept is worker else 0, kept)
        return answer

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
        if not worker.has_priority():
            return self._replace(worker, "slow")
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
