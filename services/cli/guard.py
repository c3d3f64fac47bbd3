"""Ends every process of a run when its supervisor is gone, however it went.

    supervisor --pipe--> guard          the pipe's end means: the supervisor stopped, or was killed
    guard --SIGKILL--> all process groups that carry the run's mark in their environment

The mark is inherited by whatever a service starts (vLLM's engine process, reward workers), so nothing has to be
registered and nothing can be missed between a fork and its registration. Linux only: it reads /proc.

Not covered: a process that both clears its environment and leaves its group.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "DAPO_SUPERVISOR"
LIMIT_S = 10.0


@contextlib.contextmanager
def guarded(mark: str) -> Iterator[None]:
    """Nothing that is started inside the block with `MARK=mark` in its environment outlives it."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark], stdin=subprocess.PIPE, start_new_session=True
    )
    assert guard.stdin is not None
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait()


def end_marked(mark: str) -> None:
    """Kill the process groups of all marked processes, until none is left."""
    deadline = time.monotonic() + LIMIT_S
    while (pids := marked(mark)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
        time.sleep(0.02)


def marked(mark: str) -> list[int]:
    """The living processes that carry the mark."""
    wanted = f"{MARK}={mark}".encode()
    return [pid for pid in _processes() if wanted in _environment(pid)]


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """Empty for a zombie, another user's process, or one that has just ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_marked(sys.argv[1])
