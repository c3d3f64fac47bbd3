"""What is done to a run, one function a fault. Each returns a sentence for the log; nothing here judges.

Faults of one kind differ by the dice alone, so a seed gives the same faults, as far as the run allows.
"""

import asyncio
import os
import random
import signal
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.processes import NAMES, Run
from tests.chaos.proxy import Proxy, Weather
from tests.chaos.recovery import Recovery

SAVE_WAIT_S = 8.0
"""How long to wait for the learner to begin a checkpoint."""
RESUME = "--resume"
WEATHERS = {
    "late": Weather(latency_s=0.2),
    "slow": Weather(share=0.5, bytes_per_s=50_000),
    "partition": Weather(share=0.5, silent=True),
    "damaged": Weather(damage=0.1),
    "repeated": Weather(repeat=0.2),
    "reordered": Weather(reorder=0.2),
}


@dataclass(kw_only=True)
class Chaos:
    """What faults may touch."""

    run: Run
    proxy: Proxy
    recovery: Recovery
    dice: random.Random
    clock: Path
    disk: Path | None
    """A small file system that holds the run folder, if one could be mounted."""
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def later(self, work: Awaitable[None]) -> None:
        """Undo a fault in a while."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def kill(chaos: Chaos) -> str:
    """SIGKILL of one service."""
    name = chaos.dice.choice(NAMES)
    chaos.recovery.watch(name)
    return f"killed {name} {chaos.run.signal(name, signal.SIGKILL)}"


async def stop(chaos: Chaos) -> str:
    """SIGSTOP of one service, for less or more than a lease."""
    name, seconds = chaos.dice.choice(NAMES), chaos.dice.uniform(0.5, 9.0)
    pids = chaos.run.signal(name, signal.SIGSTOP)

    async def go_on() -> None:
        await asyncio.sleep(seconds)
        for pid in pids:
            if pid in chaos.run.pids(name):
                os.kill(pid, signal.SIGCONT)

    chaos.later(go_on())
    return f"stopped {name} for {seconds:.1f} s"


async def cut(chaos: Chaos) -> str:
    """Connections reset."""
    share = chaos.dice.choice([0.3, 1.0])
    chaos.proxy.cut(share)
    return f"cut {share:.0%} of the connections"


async def weather(chaos: Chaos) -> str:
    """Bad weather on the way to the broker."""
    kind, seconds = chaos.dice.choice(sorted(WEATHERS)), chaos.dice.uniform(1.0, 6.0)
    chaos.proxy.change(WEATHERS[kind])

    async def clear() -> None:
        await asyncio.sleep(seconds)
        chaos.proxy.change(Weather())
        if kind == "partition":
            chaos.proxy.cut(1.0)  # what was on its way is gone, as behind a firewall that forgot the connection

    chaos.later(clear())
    return f"{kind} for {seconds:.1f} s"


async def clock(chaos: Chaos) -> str:
    """The wall clock jumps, for all processes."""
    seconds = chaos.dice.choice([-86_400, -3_600, -1, 1, 3_600, 86_400])
    with chaos.clock.open("r+b") as file:
        (offset,) = struct.unpack("q", file.read(8))
        file.seek(0)
        file.write(struct.pack("q", offset + seconds * 10**9))
    return f"clock moved by {seconds} s"


async def kill_saving(chaos: Chaos) -> str:
    """SIGKILL of the learner while it writes a checkpoint."""
    folder, deadline = chaos.run.setting.run / "checkpoints", asyncio.get_running_loop().time() + SAVE_WAIT_S
    left = set(folder.glob(".partial-*"))  # of a save that was killed before
    while left >= set(folder.glob(".partial-*")):
        if asyncio.get_running_loop().time() > deadline:
            return "no checkpoint was begun in time"
        await asyncio.sleep(0.002)
    await asyncio.sleep(chaos.dice.uniform(0.0, 0.03))
    chaos.recovery.watch("learner-0")
    chaos.run.signal("learner-0", signal.SIGKILL)
    return "killed learner-0 while it saved"


async def fill_disk(chaos: Chaos) -> str:
    """The disk of the run folder is full for a while."""
    if chaos.disk is None:
        return "no small disk here: not done"
    seconds, filler = chaos.dice.uniform(1.0, 5.0), chaos.disk / "filler"
    free = os.statvfs(chaos.disk).f_bavail * os.statvfs(chaos.disk).f_frsize
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - chaos.dice.choice([0, 0, 1 << 20, 4 << 20])))

    async def empty() -> None:
        await asyncio.sleep(seconds)
        filler.unlink(missing_ok=True)

    chaos.later(empty())
    return f"disk full for {seconds:.1f} s"


async def kill_all(chaos: Chaos) -> str:
    """Everything at once, supervisor first; then `--resume`."""
    chaos.recovery.forget()
    await chaos.run.kill()
    await chaos.run.start(RESUME)
    return "killed everything, resumed"


Fault = Callable[[Chaos], Awaitable[str]]
FAULTS: dict[str, tuple[Fault, float]] = {
    "kill": (kill, 5.0),
    "stop": (stop, 3.0),
    "cut": (cut, 1.0),
    "weather": (weather, 4.0),
    "clock": (clock, 1.0),
    "kill_saving": (kill_saving, 1.5),
    "disk": (fill_disk, 1.0),
    "everything": (kill_all, 0.4),
}
"""Name -> what it does, and its weight in the dice."""
