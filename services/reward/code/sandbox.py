"""The outside of the sandbox: one launcher process (box/launcher.py), and programs run in it one after the other.

    run(program, case) -> folder, streams -> launcher forks -> watch until it exits, or breaks a limit -> kill -> Ended

Expected outputs stay here. Where the host allows it the launcher lives in namespaces of its own (namespaces.py).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from services.reward.code.box.launcher import CONFINED, END, HEADER, LAYERS, RUN
from services.reward.code.namespaces import wrapper
from services.reward.code.watching import Watch
from services.reward.limits import Limits

START_S = 30.0
_PREFIX = "dapo-code-"
_NEARLY = 0.9
"""Part of its processor time that a program which was killed must have used, to have been killed for it."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
}  # fmt: skip


class SandboxError(Exception):
    """The sandbox failed, not the program."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run."""

    source: str
    function: str
    """Empty: as a whole."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended, and what it left."""

    cause: str
    """`exit`, `timeout`, `starved` (hardly got the processor), `output` or `files` (more than it may)."""
    exit_status: int
    """Negative: the signal."""
    printed: bytes
    returned: bytes
    errors: bytes
    confined: bool
    """Whether it came as far as the program."""


class Sandbox:
    """Runs programs under test. For one thread."""

    layers: Sequence[str]
    """What confines programs here, beside resource limits."""

    def __init__(self, leave_out: Collection[str] = ()) -> None:
        """Start the launcher; layers can be left out, to try the others."""
        sweep()
        self._home = tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True)
        os.chmod(self._home.name, 0o711)  # noqa: S103  (programs that run as nobody pass through to theirs)
        command = [] if "bubblewrap" in leave_out else wrapper(self._home.name)
        self._control, theirs = socket.socketpair()
        self._control.settimeout(START_S)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from services.reward.code.box.launcher import main; "
            f"main({theirs.fileno()}, {list(leave_out)!r})"
        )
        self._process = subprocess.Popen(
            [*command, sys.executable, "-I", "-X", "utf8", "-c", code], pass_fds=[theirs.fileno()], env=_ENVIRONMENT,
            cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self.layers = [*self._ask(LAYERS), *(["bubblewrap"] if command else [])]

    def run(self, program: Program, *, stdin: str, arguments: Sequence[Any], limits: Limits) -> Ended:
        """Run a program once; raises `SandboxError` if that was not possible."""
        with tempfile.TemporaryDirectory(dir=self._home.name, ignore_cleanup_errors=True) as folder:
            request = {
                "source": program.source, "function": program.function, "arguments": arguments, "folder": folder,
                "limits": msgspec.structs.asdict(limits),
            }  # fmt: skip
            return self._run(json.dumps(request, default=str).encode(), stdin, folder, limits)

    def close(self) -> None:
        """End the launcher, and with it what runs in it."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._home.cleanup()

    def _run(self, request: bytes, stdin: str, folder: str, limits: Limits) -> Ended:
        with open(os.memfd_create("stdin"), "wb+") as given:
            given.write(stdin.encode(errors="surrogatepass"))
            given.flush()
            given.seek(0)
            ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
            try:
                try:
                    pidfd = self._start(request, [given.fileno(), *theirs])
                finally:
                    for stream in theirs:
                        os.close(stream)
                try:
                    watch = Watch(ours, pidfd, Path(folder), limits)
                    cause = watch.until_end()
                finally:
                    os.close(pidfd)
                end = self._ask(END)
            finally:
                for stream in ours:
                    os.close(stream)
        printed, errors, result = watch.found
        if cause == "timeout" and end["runnable"] and end["cpu_s"] < limits.case_s / 2:
            cause = "starved"
        if cause == "exit" and end["exit"] < 0 and end["cpu_s"] > _NEARLY * limits.case_s:
            cause = "timeout"
        return Ended(
            cause=cause, exit_status=end["exit"], printed=bytes(printed), errors=bytes(errors),
            returned=bytes(result), confined=result.startswith(CONFINED),
        )  # fmt: skip

    def _start(self, request: bytes, streams: Sequence[int]) -> int:
        """Have a program started; returns a file that can be polled for its end."""
        try:
            socket.send_fds(self._control, [HEADER.pack(RUN, len(request))], list(streams))
            self._control.sendall(request)
            _, files, _, _ = socket.recv_fds(self._control, 1, 1)
        except OSError as error:
            raise SandboxError(f"the launcher does not answer ({error})") from error
        if not files:
            raise SandboxError("the launcher is gone")
        return files[0]

    def _ask(self, command: bytes) -> Any:
        try:
            self._control.sendall(HEADER.pack(command, 0))
            _, size = HEADER.unpack(self._read(HEADER.size))
            return json.loads(self._read(size))
        except OSError as error:
            raise SandboxError(f"the launcher does not answer ({error})") from error

    def _read(self, size: int) -> bytes:
        data = self._control.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise SandboxError("the launcher is gone")
        return data


def sweep() -> None:
    """Remove the folders of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdecimal() and not os.path.exists(f"/proc/{process}"):
            shutil.rmtree(path, ignore_errors=True)
