"""What a process uses, from /proc: processor seconds, memory, and whether it wants the processor or waits."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """At one moment; zeros for a process that is gone."""

    cpu_s: float = 0.0
    runnable: bool = False
    resident_bytes: int = 0


def usage(pid: int) -> Usage:
    """The usage of a process now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Usage()
    return Usage(
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        runnable=fields[0] == "R",
        resident_bytes=int(fields[21]) * resource.getpagesize(),
    )
