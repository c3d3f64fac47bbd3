"""Reading what a program under test writes, until it exits or breaks a limit."""

import os
import selectors
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.reward.limits import Limits

LOOK_S = 0.05
"""Between two looks at what a program writes to its folder."""
_CHUNK = 1 << 16
_ERRORS_BYTES = 1 << 16


class Watch:
    """Reads what a program writes, until it exits or breaks a limit."""

    def __init__(self, streams: Sequence[int], pidfd: int, folder: Path, limits: Limits) -> None:
        self.found = (bytearray(), bytearray(), bytearray())
        """Printed, errors, result."""
        self._folder = folder
        self._limits = limits
        self._deadline = time.monotonic() + limits.wall_s
        self._pidfd = pidfd
        self._selector = selectors.DefaultSelector()
        for place, stream in enumerate(streams):
            os.set_blocking(stream, False)
            self._selector.register(stream, selectors.EVENT_READ, self.found[place])
        self._selector.register(pidfd, selectors.EVENT_READ, None)

    def until_end(self) -> str:
        """The cause of the end."""
        with self._selector:
            while time.monotonic() < self._deadline:
                ready = self._selector.select(LOOK_S)
                ended = any(key.data is None for key, _ in ready)
                for key, _ in ready:
                    if key.data is not None:
                        self._read(key.fileobj, key.data, to_the_end=ended)
                if max(len(self.found[0]), len(self.found[2])) > self._limits.output_mib << 20:
                    return "output"
                if _size(self._folder) > self._limits.files_mib << 20:
                    return "files"
                if ended:
                    self._drain()
                    return "exit"
            return "timeout"

    def _drain(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._read(key.fileobj, key.data, to_the_end=True)

    def _read(self, stream: Any, data: bytearray, *, to_the_end: bool) -> None:
        while True:
            try:
                part = os.read(stream, _CHUNK)
            except BlockingIOError:
                return
            if not part:
                self._selector.unregister(stream)
                return
            if data is not self.found[1] or len(data) < _ERRORS_BYTES:
                data += part
            if not to_the_end or len(data) > self._limits.output_mib << 20:
                return


def _size(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(os.lstat(os.path.join(place, name)).st_size for place, _, names in os.walk(folder) for name in names)
