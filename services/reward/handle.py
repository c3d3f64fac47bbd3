"""One worker process as its pool sees it: asked, watched, stopped while others go first, replaced by who owns it.

    ask(request, turn) --> the verdict, or how the worker was lost

While a request computes it has one of the turns (turns.py), as many as there are processors. When it has used the
processor for its allowance, and others wait, its process is stopped until it is its turn again. So inputs that hang
take hardly more from the others than a worker, and there may be many more workers than processors. What waits for
something (a judge, a program in the sandbox) needs no turn and goes on beside.

A time limit is of the wall clock, without the time stopped. If it passes while the process wanted the processor and
hardly got it, that says nothing of the text: it is `starved`, not `timeout`, and the pool tries again.
"""

import contextlib
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass

import msgspec

from common.messages import Verdict
from services.reward import frames
from services.reward.turns import Evicted, Turn, Turns
from services.reward.usage import processor_s, usage
from services.reward.verifiers import CODE
from services.reward.worker import READY, Request
from services.reward.zygote import Zygote

START_S = 60.0
LOOK_S = 0.005
"""Between two looks at what a process that computes uses; one that waited is looked at less often."""
LEAST_LOOK_S, BESIDE_S = 0.001, 0.05
ALLOWANCES_S = (0.0, 0.12, 0.5)
"""Seconds of the processor that lift a request from its level; at the last level nothing does."""
ENOUGH_S = 0.2
"""Processor seconds that a request must have had, if it wanted them, to be called too slow: far beyond the usual."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker that gave no verdict: its deadline passed, or it died."""

    cause: str
    """`timeout`, `starved` (its time passed, but it hardly got the processor), `evicted` or `died`."""


class Worker:
    """One worker process and the stream to it. Used by one thread at a time."""

    def __init__(self, zygote: Zygote, memory_bytes: int) -> None:
        """Start the process; it may not be ready yet."""
        self._stream, theirs = socket.socketpair()
        self.knows = zygote.loaded
        self.pid, self._pidfd = zygote.start(theirs, memory_bytes)
        self.requests = 0
        self.judged = ""
        """The verifier asked last: its part of the memory is this process's own, the rest is copied at first use."""
        self.used_s = 0.0
        """Of the processor, for the last answer."""
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

    def ask(self, request: Request, turns: Turns, turn: Turn, allowance_s: float) -> Verdict | Lost:
        """The verdict of the process, or how it was lost, within the request's time; it has its turn already.

        `allowance_s` is the least that lifts it from its level.
        """
        self.requests += 1
        self.judged = request.task.verifier
        before_s = processor_s(self.pid)
        try:
            frames.send(self._stream, msgspec.msgpack.encode(request), time.monotonic() + request.timeout_s)
            stopped_s = self._watch(request, turns, turn, before_s, allowance_s)
            reply = frames.receive(self._stream, time.monotonic() + request.timeout_s)
            self.used_s = processor_s(self.pid) - before_s
            verdict = msgspec.msgpack.decode(reply, type=Verdict)
            return msgspec.structs.replace(verdict, seconds=max(verdict.seconds - stopped_s, 0.0))
        except TimeoutError:
            now = usage(self.pid)
            starved = now.runnable and now.cpu_s - before_s < min(ENOUGH_S, request.timeout_s / 2)
            return Lost("starved" if starved else "timeout")
        except Evicted:
            return Lost("evicted")
        except EOFError:
            return Lost("died")

    def _watch(self, request: Request, turns: Turns, turn: Turn, before_s: float, allowance_s: float) -> float:
        """Wait for a reply; for how many seconds the process was stopped.

        Raises `TimeoutError` when the request's time is over and `Evicted` from its turns.
        """
        stream = select.poll()
        stream.register(self._stream, select.POLLIN)
        deadline, stopped_s = time.monotonic() + request.timeout_s, 0.0
        allowed_s = _allowed(turn.level, before_s, allowance_s)
        look_s = min(LOOK_S, max(allowance_s, LEAST_LOOK_S))
        while not stream.poll(1000 * look_s):
            if time.monotonic() >= deadline + stopped_s:
                raise TimeoutError
            now = usage(self.pid)
            if not turn.holds or not now.runnable:
                turns.give(turn)
                look_s = BESIDE_S
                continue
            while now.cpu_s >= allowed_s:
                turn.level += 1
                allowed_s = _allowed(turn.level, before_s, allowance_s)
            look_s = min(LOOK_S, max(allowed_s - now.cpu_s, LEAST_LOOK_S))
            if request.task.verifier != CODE and turns.is_wanted(turn.level):
                stopped_s += self._stop(turns, turn)
        return stopped_s

    def _stop(self, turns: Turns, turn: Turn) -> float:
        """Let the others go first; for how many seconds."""
        begun = time.monotonic()
        self._signal(signal.SIGSTOP)
        turns.pause(turn)
        self._signal(signal.SIGCONT)
        return time.monotonic() - begun

    def _signal(self, number: signal.Signals) -> None:
        """Nothing for a process that is gone; its stream says so."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """End the process at once, whatever it is at, stopped or not."""
        self._signal(signal.SIGKILL)
        self._stream.close()
        os.close(self._pidfd)


def _allowed(level: int, before_s: float, allowance_s: float) -> float:
    """What the clock of the process may show before the request rises above its level."""
    return before_s + max(ALLOWANCES_S[level], allowance_s) if level < len(ALLOWANCES_S) else math.inf
