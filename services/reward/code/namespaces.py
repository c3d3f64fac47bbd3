"""Bubblewrap, where the host allows it: the launcher in namespaces of its own.

No network, no other processes, of the file system only the interpreter, the system's libraries and one folder.
"""

import functools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from services.reward.code.box.confine import readable

_NAMESPACES = ("--unshare-all", "--die-with-parent", "--dev", "/dev", "--proc", "/proc")
_PRIVATE = "/tmp"  # noqa: S108  (the namespace's own)


def wrapper(home: str) -> Sequence[str]:
    """The command that starts the launcher in namespaces of its own; empty where the host does not allow it."""
    program = shutil.which("bwrap")
    if program is None or not _works(program):
        return []
    package = str(Path(__file__).parent)
    shown = [path for path in dict.fromkeys([*readable(), package]) if not path.startswith("/dev")]
    return [
        program, *_NAMESPACES, *(part for path in shown for part in ("--ro-bind-try", path, path)),
        "--tmpfs", _PRIVATE, "--bind", home, home,
    ]  # fmt: skip


@functools.cache
def _works(program: str) -> bool:
    command = [program, *_NAMESPACES, "--ro-bind", "/", "/", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
