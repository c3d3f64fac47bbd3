"""A wall clock that can be set: every Python process with this folder on its path adds an offset to `time.time`.

DAPO_CHAOS_CLOCK names a file with the offset in nanoseconds, as 8 bytes; whoever writes it moves the clock of all. The
monotonic clock is not touched, as no machine's is.
"""

import mmap
import os
import time

_path = os.environ.get("DAPO_CHAOS_CLOCK")
if _path:
    with open(_path, "rb") as _file:
        _offset = memoryview(mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)).cast("q")
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _offset[0] / 1e9
    time.time_ns = lambda: _time_ns() + _offset[0]
