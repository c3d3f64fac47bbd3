"""One worker process as its pool sees it: asked, watched, replaced by who owns it.

    ask(request) --> the verdict, or how the worker was lost

A request has one of the pool's slots, as many as there are processors, until it is answered, waits for something, or
has computed for its allowance; from then on it goes on beside the slots and gets the processor only when nobody else
wants it. So inputs that hang take hardly more from the others than a worker, and there may be many more workers than
processors.

A deadline is of the wall clock. If it passes while the process wanted the processor and hardly got it, that says
nothing of the text: it is `starved`, not `timeout`, and the pool tries again with a larger allowance.
"""

import contextlib
import os
import select
import socket
import time
from dataclasses import dataclass

import msgspec

from common.messages import Verdict
from services.reward import frames
from services.reward.usage import processor_s, usage
from services.reward.worker import READY, Request
from services.reward.zygote import Zygote

START_S = 60.0
LOOK_S = 0.005
"""Between two looks at what a process uses."""
ENOUGH_S = 0.2
"""Processor seconds that a request must have had, if it wanted them, to be called too slow: far beyond the usual."""


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
        self.judged = ""
        """The verifier asked last: its part of the memory is this process's own, the rest is copied at first use."""
        self.used_s = 0.0
        """Of the processor, for the last answer."""
        self._is_last = False
        """Whether it gets the processor only when nobody else wants it."""
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

    @property
    def is_gone(self) -> bool:
        """Whether the process ended since its last answer."""
        stream = select.poll()
        stream.register(self._stream, 0)
        return bool(stream.poll(0))

    def ask(self, request: Request, slot: contextlib.ExitStack, allowance_s: float) -> Verdict | Lost:
        """The verdict of the process, or how it was lost, within the request's time.

        Closes the slot when the process waits or has used the processor for the allowance.
        """
        self.requests += 1
        self.judged = request.task.verifier
        deadline, cpu_s = time.monotonic() + request.timeout_s, processor_s(self.pid)
        try:
            frames.send(self._stream, msgspec.msgpack.encode(request), deadline)
            self._watch(deadline, cpu_s + allowance_s, slot)
            verdict = msgspec.msgpack.decode(frames.receive(self._stream, deadline), type=Verdict)
            self.used_s = processor_s(self.pid) - cpu_s
            return verdict
        except TimeoutError:
            now = usage(self.pid)
            starved = now.runnable and now.cpu_s - cpu_s < min(ENOUGH_S, request.timeout_s / 2)
            return Lost("starved" if starved else "timeout")
        except EOFError:
            return Lost("died")

    def _watch(self, deadline: float, allowed_s: float, slot: contextlib.ExitStack) -> None:
        """Wait for a reply, the deadline, or the end of the allowance; what waits meanwhile gives its slot back."""
        stream = select.poll()
        stream.register(self._stream, select.POLLIN)
        while not stream.poll(1000 * LOOK_S) and time.monotonic() < deadline:
            if processor_s(self.pid) >= allowed_s:
                self._schedule(os.SCHED_IDLE)
                slot.close()
                return
            if not usage(self.pid).runnable:
                slot.close()

    def has_priority(self) -> bool:
        """Whether it has its full priority, given back if possible: only root may."""
        if self._is_last:
            self._schedule(os.SCHED_OTHER)
        return not self._is_last

    def _schedule(self, policy: int) -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(self.pid, policy, os.sched_param(0))
            self._is_last = policy == os.SCHED_IDLE

    def kill(self) -> None:
        """End the process at once; one that is last would wait for the processor even to end."""
        if self._is_last:
            self._schedule(os.SCHED_OTHER)
        self._stream.close()
        self._zygote.end(self.pid)
