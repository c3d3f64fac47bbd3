"""The loop of a worker process: request -> verdict, until its pool closes the stream or kills it.

    pool --Request--> worker --Verdict--> pool

The pool kills a worker that overruns. Two limits hold even when the pool is stopped: the kernel ends a worker that has
had the processor for `GRACE_S` more than its request may take (an interval timer with the default action, which no
computation can hold up), and its address space is bounded, so that a growing number ends in a MemoryError here and not
in the host's OOM.

Not covered: this is no sandbox. Verifiers that run code of the model bring their own.
"""

import contextlib
import functools
import logging
import resource
import signal
import socket
import time

import msgspec
from msgspec import Struct

from common.messages import Task, Verdict
from services.reward import frames
from services.reward.limits import Limits
from services.reward.verifiers import BAD_GOLD, CODE, MEMORY, UNUSABLE, BadGoldError, UnusableError, error, load, wrong

GRACE_S = 2.0
READY = b"ready"


class Request(Struct, frozen=True, kw_only=True):
    """One output to judge."""

    output: str
    task: Task
    timeout_s: float
    limits: Limits = Limits()
    """Of a program, if the verifier runs one."""


def serve(stream: socket.socket, memory_bytes: int) -> None:
    """Answer requests until the stream ends, or memory ran out once."""
    _limit(memory_bytes)
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    decoder = msgspec.msgpack.Decoder(Request)
    with contextlib.suppress(EOFError):
        frames.send(stream, READY)
        while True:
            request = decoder.decode(frames.receive(stream))
            signal.setitimer(signal.ITIMER_PROF, request.timeout_s + GRACE_S)
            verdict = judge(request.output, request.task, request.limits)
            signal.setitimer(signal.ITIMER_PROF, 0)
            frames.send(stream, msgspec.msgpack.encode(verdict))
            if verdict.reason == MEMORY:
                return


def judge(output: str, task: Task, limits: Limits | None = None) -> Verdict:
    """The verdict of the task's verifier, timed."""
    start = time.perf_counter()
    try:
        verifier = load(task.verifier)
        if verifier and task.verifier == CODE:
            from services.reward.code.verifier import verify_code

            verifier = functools.partial(verify_code, limits=limits)
        verdict = verifier(output, task) if verifier else error(f"unknown verifier: {task.verifier[:100]}")
    except MemoryError:
        verdict = wrong(MEMORY)
    except BadGoldError as why:
        verdict = error(f"{BAD_GOLD}: {why}")
    except UnusableError as why:
        verdict = error(f"{UNUSABLE}: {why}")
    return msgspec.structs.replace(verdict, seconds=time.perf_counter() - start)


def _limit(memory_bytes: int) -> None:
    """Bound what this process may add to its memory; no core dumps; the timer kills."""
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
