"""From a fresh process to one that may run a program under test.

another user, if this one is root and the interpreter is not root's alone -> resource limits -> Landlock -> seccomp

    rlimits     processor seconds, memory, size of a file, open files; no core dump
    Landlock    reading: the interpreter and the system's libraries; writing: the work folder
    seccomp     no processes, network, signals to others (syscalls.py); where Landlock is missing no writing either

Each layer is used where the kernel has it. `Layers.names` says which there are, for the outside to decide on.
"""

import contextlib
import ctypes
import math
import os
import resource
import signal
import site
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.reward.code.box import landlock

NOBODY = 65534
NUM_FILES = 64
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl",
    "/dev/urandom",
    "/dev/zero",
)


class Layers:
    """What this kernel and this installation have, beside the resource limits; made before the fork, used after it."""

    def __init__(self, left_out: Sequence[str] = ()) -> None:
        """Look; some can be left out, to try the others."""
        self.names = ["landlock"] if landlock.version() and "landlock" not in left_out else []
        self._as_nobody = os.geteuid() == 0 and all(map(_is_open_to_all, (os.__file__, *site.getsitepackages())))
        self._table: Any = None
        try:
            from services.reward.code.box import syscalls
        except (ImportError, RuntimeError):  # RuntimeError: without the system's libseccomp
            return
        if "seccomp" not in left_out:
            self._table = syscalls.table(files="landlock" in self.names)
            self.names.append("seccomp")

    def confine(self, limits: Mapping[str, Any], folder: str) -> None:
        """Give up everything that a program under test does not need."""
        if self._as_nobody:
            _become_nobody(folder)
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        _limit(limits)
        if "landlock" in self.names:
            landlock.restrict(readable(), folder)
        if self._table is not None:
            self._table.load()


def readable() -> list[str]:
    """The folders of the interpreter and of the system."""
    own = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages()]
    return [*SYSTEM, *own]


def _limit(limits: Mapping[str, Any]) -> None:
    for name, value in {
        resource.RLIMIT_CPU: math.ceil(limits["case_s"]),
        resource.RLIMIT_AS: limits["memory_mib"] << 20,
        resource.RLIMIT_FSIZE: limits["files_mib"] << 20,
        resource.RLIMIT_NOFILE: NUM_FILES,
        resource.RLIMIT_CORE: 0,
    }.items():
        hard = resource.getrlimit(name)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (least, least))


def _is_open_to_all(path: str) -> bool:
    """Whether another user can read what is there."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in Path(path).resolve().parents)


def _become_nobody(folder: str) -> None:
    """Root of a container, or of a namespace, that knows no other users stays what it is."""
    with contextlib.suppress(OSError):
        os.chown(folder, NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
