"""The process that programs under test are forked from. It is trusted, runs none of their code, and knows no tests.

    worker --RUN request, 4 streams--> launcher --fork--> child: confine (confine.py), run (program.py), exit
                                       launcher --pid fd--> worker
    worker --END--> launcher: kill -9 of the child's group, reap, answer with how it ended

A child costs a fork, so a program's tests each have a process of their own. The launcher starts with a clean
environment, ends with the stream of its worker, and its children end with it.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from services.reward.code.box import program
from services.reward.code.box.confine import Layers

HEADER = struct.Struct("!cI")
RUN, END, LAYERS = b"r", b"e", b"l"
NUM_STREAMS = 4
RESULT_FD = 3
CONFINED = b"\n"
"""Begins the result of a child that has come as far as the program; without it, what ended it was none of its doing."""
_PR_SET_PDEATHSIG = 1


def main(control_fd: int, left_out: Sequence[str] = ()) -> None:
    """Serve one worker until it is gone; some layers can be left out, to try the others."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    known, layers = program.names(), Layers(left_out)
    gc.freeze()
    child = 0
    while True:
        command, payload, streams = _receive(control)
        if command == LAYERS:
            _send(control, layers.names)
        elif command == RUN:
            child = os.fork()
            if child == 0:
                control.close()
                _child(json.loads(payload), streams, known, layers)
            for stream in streams:
                os.close(stream)
            pidfd = os.pidfd_open(child)
            socket.send_fds(control, [b"p"], [pidfd])
            os.close(pidfd)
        elif command == END:
            _send(control, _end(child))
            child = 0
        else:
            return


def _child(request: dict[str, Any], streams: list[int], known: dict[str, Any], layers: Layers) -> NoReturn:
    """Become the program; leaves through the interpreter's own exit."""
    os.setsid()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    os.closerange(len(streams), 256)
    folder = request["folder"]
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    layers.confine(request["limits"], folder)
    os.write(RESULT_FD, CONFINED)
    program.run(
        request["source"],
        known=known,
        function=request["function"],
        arguments=request["arguments"],
        result_fd=RESULT_FD,
    )
    sys.exit(0)


def _end(child: int) -> dict[str, Any]:
    """Kill a child, if it still runs, and say how it ended."""
    runnable = _is_runnable(child)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it had not come as far as to lead a group
        os.kill(child, signal.SIGKILL)
    except PermissionError:  # a group of dead processes only
        pass
    _, status, usage = os.wait4(child, 0)
    return {
        "exit": os.waitstatus_to_exitcode(status), "cpu_s": usage.ru_utime + usage.ru_stime, "runnable": runnable,
    }  # fmt: skip


def _is_runnable(child: int) -> bool:
    try:
        with open(f"/proc/{child}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _receive(control: socket.socket) -> tuple[bytes, bytes, list[int]]:
    """The next command; an empty one when the worker is gone."""
    head, streams, _, _ = socket.recv_fds(control, HEADER.size, NUM_STREAMS)
    if len(head) < HEADER.size:
        return b"", b"", streams
    command, size = HEADER.unpack(head)
    payload = b""
    while len(payload) < size:
        part = control.recv(size - len(payload))
        if not part:
            return b"", b"", streams
        payload += part
    return command, payload, streams


def _send(control: socket.socket, answer: Any) -> None:
    data = json.dumps(answer).encode()
    control.sendall(HEADER.pack(b"a", len(data)) + data)
