"""One worker process as its pool sees it: asked, watched, replaced by who owns it.

    ask(request) --> the verdict, or how the worker was lost

A request has one of the pool's slots, as many as there are processors, until it is answered, waits for something, or
has computed for `SLOW_S`; from then on it goes on beside the slots with a lower priority. So inputs that hang take
hardly more from the others than a worker, and there may be many more workers than processors.

A deadline is of the wall clock. If it passes while the process wanted the processor and hardly got it, that says
nothing of the text: it is `starved`, not `timeout`.
"""

import contextlib
import os
import select
import socket
import threading
import time
from dataclasses import dataclass

import msgspec

from common.messages import Verdict
from services.reward import frames
from services.reward.usage import usage
from services.reward.worker import READY, Request
from services.reward.zygote import Zygote

START_S = 60.0
SLOW_S = 0.05
PRIORITIES = ((0.5, 19), (SLOW_S, 10))
"""(processor seconds, nice from then on)."""
FAIR_SHARE = 0.25
"""Part of its time for which a request must have had the processor, if it wanted it, to be called too slow."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker that gave no verdict: its deadline passed, or it died."""

    cause: str
    """`timeout`, `starved` (its deadline passed, but it hardly got the processor) or `died`."""


class Worker:
    """One worker process and the stream to it. Used by one thread at a time."""

    def __init__(self, zygote: Zygote, memory_bytes: int) -> None:
        """Start the process; it may not be ready yet."""
        self._zygote = zygote
        self._stream, theirs = socket.socketpair()
        self.knows = zygote.loaded
        self.pid = zygote.start(theirs, memory_bytes)
        self.requests = 0
        self.nice = 0
        """How far its priority was lowered, which only root could undo: if at all, it is replaced after the request."""
        self._start_bytes = 0
        theirs.close()

    def wait_until_ready(self) -> None:
        """Raise unless the process says that it is ready."""
        if frames.receive(self._stream, time.monotonic() + START_S) != READY:
            raise EOFError("a worker process did not start")
        self._start_bytes = usage(self.pid).resident_bytes

    @property
    def grown_bytes(self) -> int:
        """Memory it uses beyond what it used at its start."""
        return usage(self.pid).resident_bytes - self._start_bytes

    def ask(self, request: Request, slots: threading.Semaphore) -> Verdict | Lost:
        """The verdict of the process, or how it was lost. Waits for a slot, then at most the request's time."""
        self.requests += 1
        slots.acquire()
        slot = contextlib.ExitStack()
        slot.callback(slots.release)
        deadline, cpu_s = time.monotonic() + request.timeout_s, usage(self.pid).cpu_s
        try:
            with slot:
                frames.send(self._stream, msgspec.msgpack.encode(request), deadline)
                self._watch(deadline, cpu_s, slot)
                return msgspec.msgpack.decode(frames.receive(self._stream, deadline), type=Verdict)
        except TimeoutError:
            now = usage(self.pid)
            starved = now.runnable and now.cpu_s - cpu_s < FAIR_SHARE * request.timeout_s
            return Lost("starved" if starved else "timeout")
        except EOFError:
            return Lost("died")

    def _watch(self, deadline: float, cpu_s: float, slot: contextlib.ExitStack) -> None:
        """Wait for a reply or the deadline; what is slow, or sleeps, gives its slot back."""
        stream = select.poll()
        stream.register(self._stream, select.POLLIN)
        while not stream.poll(1000 * SLOW_S) and time.monotonic() < deadline:
            now = usage(self.pid)
            self._lower(now.cpu_s - cpu_s)
            if self.nice or not now.runnable:
                slot.close()

    def _lower(self, used_s: float) -> None:
        """Give a request that has used so much of the processor the priority that it deserves."""
        nice = next((nice for least_s, nice in PRIORITIES if used_s >= least_s), 0)
        if nice > self.nice:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.pid, nice)
            self.nice = nice

    def kill(self) -> None:
        """End the process at once."""
        self._stream.close()
        self._zygote.end(self.pid)
