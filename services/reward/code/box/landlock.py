"""Landlock: from here on this process may read some folders, write one, and nothing else of the file system.

The kernel's interface (Documentation/userspace-api/landlock.rst), Linux 5.13 and later; no privilege is needed. Not
covered: files that are open already, and names that are only looked at (`stat`).
"""

import ctypes
import os
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_OF_FILES = _EXECUTE | _WRITE | _READ | (1 << 14) | (1 << 15)
"""Rights that a rule for a single file may name: with truncate and ioctl."""
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights on files, by version of the interface."""
_NEWEST = 5
_NETWORK_SINCE, _TCP = 4, 0b11
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Abstract Unix sockets and signals to processes outside."""


def version() -> int:
    """The version of the interface; 0 where the kernel has none, or has it switched off."""
    return max(0, int(_libc().syscall(_CREATE, None, 0, _VERSION)))


def restrict(readable: Sequence[str], writable: str) -> None:
    """Confine this thread and all that comes of it; folders that do not exist are left out. Raises `OSError`."""
    known = version()
    rights = _RIGHTS[min(known, _NEWEST)]
    sets = struct.pack(
        "=QQQ", rights, _TCP if known >= _NETWORK_SINCE else 0, _SCOPES if known >= _SCOPES_SINCE else 0
    )[: 8 if known < _NETWORK_SINCE else 16 if known < _SCOPES_SINCE else 24]
    ruleset = _call(_CREATE, sets, len(sets), 0)
    try:
        for path in filter(os.path.exists, readable):
            _allow(ruleset, path, _READ | _READ_DIR)
        _allow(ruleset, "/dev/null", _READ | _WRITE)
        _allow(ruleset, writable, rights & ~_EXECUTE)
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs")
        _call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights if os.path.isdir(path) else rights & _OF_FILES, file)
        _call(_ADD, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(file)


def _call(number: int, *arguments: int | bytes) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "Landlock")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
