"""What a process uses, from /proc: processor seconds, memory, and whether it wants the processor or waits."""

import resource
import time
from dataclasses import dataclass
from pathlib import Path

_CPU_CLOCK = 2
"""CPUCLOCK_SCHED: the kind of clock that clock_getcpuclockid(3) names for a process."""


@dataclass(frozen=True, slots=True)
class Usage:
    """At one moment; zeros for a process that is gone."""

    cpu_s: float = 0.0
    runnable: bool = False
    resident_bytes: int = 0


def usage(pid: int) -> Usage:
    """The usage of a process now."""
    cpu_s = processor_s(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Usage()
    return Usage(
        cpu_s=cpu_s,
        runnable=fields[0] == "R",
        resident_bytes=int(fields[21]) * resource.getpagesize(),
    )


def processor_s(pid: int) -> float:
    """Seconds for which a process had the processor, to the nanosecond; 0 for one that is gone."""
    try:
        return time.clock_gettime((~pid << 3) | _CPU_CLOCK)
    except OSError:
        return 0.0
