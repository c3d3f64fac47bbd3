"""The process that worker processes are forked from: it has the verifiers loaded, so a new worker takes milliseconds.

    pool --START memory, stream--> zygote --fork--> worker (worker.py) on that stream
    pool --LOAD name--> zygote: import that verifier, answer with what went wrong

The zygote has one thread and no state but its children and its imports; the working directory is searched last for
what a user's function needs. It ends with the stream of its pool, and its workers with it. The pool kills a worker by a
file descriptor of the process (pidfd_open(2)), which never means another one. `multiprocessing`'s fork server is not
used because it imports the caller's main module into every child.
"""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

from common.messages import Task
from services.reward.verifiers import UnusableError, load
from services.reward.worker import judge, serve

START, LOAD = b"s", b"l"
PRELOADED = ("exact", "math")
EXAMPLES = ((r"\boxed{12\sqrt{34}}", r"\sqrt{34}*12"), (r"\boxed{x^2+12x+34}", "34+12x+x^2"))
"""Judged once before the first fork: parser and computer algebra build tables at their first use, which takes a third
of a second, and all workers then share them."""
ANSWER_S = 120.0
"""A zygote that is silent for so long, for instance in an import that hangs, is replaced."""
END_S = 5.0
"""For the end of its workers, when it is to end."""
_PR_SET_PDEATHSIG = 1
_COMMAND, _ANSWER = struct.Struct("!cq"), struct.Struct("!q")


class Zygote:
    """The pool's side: starts the process, and workers in it. For any thread."""

    loaded: frozenset[str]
    """The verifiers that a worker started now knows."""
    _control: socket.socket

    def __init__(self) -> None:
        """Start the process; it loads the verifiers meanwhile."""
        self._lock = threading.Lock()
        self._open()

    def start(self, stream: socket.socket, memory_bytes: int) -> tuple[int, int]:
        """Fork a worker that serves on `stream`; its process id, and a file descriptor of it that the caller closes.

        A zygote that died is started again.
        """
        with self._lock:  # a child that ended keeps its id until the next command
            try:
                pid = self._ask(START, memory_bytes, stream)
            except (EOFError, OSError):
                self._close()
                self._open()
                pid = self._ask(START, memory_bytes, stream)
            return pid, os.pidfd_open(pid)

    def load(self, name: str) -> None:
        """Import a verifier for all workers to come; raises `UnusableError` if it cannot be."""
        with self._lock:
            if name in self.loaded:
                return
            try:
                size = self._ask(LOAD, len(name.encode()), text=name.encode())
                problem = self._control.recv(size, socket.MSG_WAITALL).decode() if size else ""
            except (EOFError, OSError):
                self._close()
                self._open()
                problem = f"verifier `{name}` cannot be imported: the process that imports it ended, or hung"
            if problem:
                raise UnusableError(problem)
            self.loaded = self.loaded | {name}

    def close(self) -> None:
        """End the zygote; workers see the end of their streams."""
        with self._lock:
            self._close()

    def _ask(self, command: bytes, value: int, stream: socket.socket | None = None, *, text: bytes = b"") -> int:
        socket.send_fds(self._control, [_COMMAND.pack(command, value)], [stream.fileno()] if stream else [])
        self._control.sendall(text)
        answer = self._control.recv(_ANSWER.size)
        if len(answer) < _ANSWER.size:
            raise EOFError("the zygote is gone")
        return int(_ANSWER.unpack(answer)[0])

    def _open(self) -> None:
        self.loaded = frozenset(PRELOADED)
        self._control, theirs = socket.socketpair()
        self._control.settimeout(ANSWER_S)
        path = [*sys.path, os.getcwd()]
        code = f"import sys; sys.path[:] = {path!r}; from services.reward.zygote import main; main({theirs.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def _close(self) -> None:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._process.kill()
        self._process.wait()


def main(control_fd: int) -> None:
    """The zygote's loop: carry out commands until the pool is gone."""
    for name in PRELOADED:
        load(name)
    for output, gold in EXAMPLES:
        judge(output, Task(verifier="math", gold=gold))
    gc.collect()
    gc.freeze()  # the collector of a worker leaves what it shares with this process alone, so it stays shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    children: set[int] = set()
    while True:
        data, streams, _, _ = socket.recv_fds(control, _COMMAND.size, 1)
        if len(data) < _COMMAND.size:
            break
        command, value = _COMMAND.unpack(data)
        if command == LOAD:
            problem = _load(control.recv(value, socket.MSG_WAITALL).decode())
            control.sendall(_ANSWER.pack(len(problem)) + problem)
        else:
            _reap(children, os.WNOHANG)
            children.add(pid := _fork(control, socket.socket(fileno=streams[0]), value))
            control.sendall(_ANSWER.pack(pid))
    _kill(children)
    _reap(children, 0)


def _kill(children: set[int]) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)


def _reap(children: set[int], options: int) -> None:
    """Forget the children that have ended."""
    children -= {child for child in children if os.waitpid(child, options)[0]}


def _load(name: str) -> bytes:
    """Import a verifier; what the user must do about it if that fails."""
    try:
        load(name)
    except UnusableError as error:
        return str(error)[:2000].encode()
    return b""


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends: one that is stopped would see no end of a stream."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _fork(control: socket.socket, stream: socket.socket, memory_bytes: int) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            _end_with(parent)
            serve(stream, memory_bytes)
            status = 0
        finally:
            os._exit(status)
    stream.close()
    return pid
