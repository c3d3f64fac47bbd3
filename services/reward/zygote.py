"""The process that worker processes are forked from: it has the verifiers loaded, so a new worker takes milliseconds.

    pool --START memory, stream--> zygote --fork--> worker (worker.py) on that stream
    pool --END pid--> zygote: kill -9, reap, answer with the exit status

Only the parent of a process can tell whether a process id is still its own, so workers are killed here. The zygote has
one thread and no state but its children; it ends with the stream of its pool. `multiprocessing`'s fork server is not
used because it imports the caller's main module into every child.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading

from services.reward.worker import serve

START, END = b"s", b"e"
_COMMAND, _ANSWER = struct.Struct("!cq"), struct.Struct("!q")


class Zygote:
    """The pool's side: starts the process, and workers in it. For any thread."""

    def __init__(self) -> None:
        """Start the process; it loads the verifiers meanwhile."""
        self._lock = threading.Lock()
        self._open()

    def start(self, stream: socket.socket, memory_bytes: int) -> int:
        """Fork a worker that serves on `stream`; returns its process id. A zygote that died is started again."""
        with self._lock:
            try:
                return self._ask(START, memory_bytes, stream)
            except (EOFError, OSError):
                self._close()
                self._open()
                return self._ask(START, memory_bytes, stream)

    def end(self, pid: int) -> None:
        """Kill a worker. One that an earlier zygote started is left to its timer and the end of its stream."""
        with self._lock:
            try:
                self._ask(END, pid)
            except (EOFError, OSError):
                self._close()
                self._open()

    def close(self) -> None:
        """End the zygote; workers see the end of their streams."""
        with self._lock:
            self._close()

    def _ask(self, command: bytes, value: int, stream: socket.socket | None = None) -> int:
        socket.send_fds(self._control, [_COMMAND.pack(command, value)], [stream.fileno()] if stream else [])
        answer = self._control.recv(_ANSWER.size)
        if len(answer) < _ANSWER.size:
            raise EOFError("the zygote is gone")
        return int(_ANSWER.unpack(answer)[0])

    def _open(self) -> None:
        self._control, theirs = socket.socketpair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from services.reward.zygote import main; main({theirs.fileno()})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def _close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


def main(control_fd: int) -> None:
    """The zygote's loop: carry out commands until the pool is gone."""
    import services.reward.exact
    import services.reward.maths.verifier  # noqa: F401  (loaded here, for all workers)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    while True:
        data, streams, _, _ = socket.recv_fds(control, _COMMAND.size, 1)
        if len(data) < _COMMAND.size:
            return
        command, value = _COMMAND.unpack(data)
        answer = _fork(control, socket.socket(fileno=streams[0]), value) if command == START else _kill(value)
        control.sendall(_ANSWER.pack(answer))


def _fork(control: socket.socket, stream: socket.socket, memory_bytes: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            serve(stream, memory_bytes)
            status = 0
        finally:
            os._exit(status)
    stream.close()
    return pid


def _kill(pid: int) -> int:
    """Kill a child that was not reaped yet and reap it; -1 if it is none."""
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        return -1
