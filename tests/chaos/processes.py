"""The processes of a run as the operating system shows them: started, found, killed, stopped, started again."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from tests.chaos.setting import Setting, dapo

NAMES = (
    "broker-0", "learner-0", "filter-0", "rollout-0", "rollout-1", "reward-0", "reward-1",
)  # fmt: skip
CLOCK = Path(__file__).parent / "clock"


class Run:
    """`dapo run` on a setting."""

    def __init__(self, setting: Setting, *, clock: Path) -> None:
        self.setting = setting
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(CLOCK), os.environ.get("PYTHONPATH", "")])),
            "DAPO_CHAOS_CLOCK": str(clock),
            "OMP_NUM_THREADS": "1",
        }
        self.process: asyncio.subprocess.Process | None = None
        self.output = setting.folder / "output.txt"

    async def start(self, *words: str) -> None:
        """Start the run, or resume it."""
        command = dapo("run", str(self.setting.config), *words)
        with self.output.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment,
                start_new_session=True,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        """Whether the supervisor has ended."""
        return self.process is None or self.process.returncode is not None

    async def finish(self, limit_s: float) -> int:
        """Exit status of the supervisor; raises `TimeoutError`."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), limit_s)

    async def kill(self) -> None:
        """The supervisor, and with it everything: as near to a power cut as processes come."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for _ in range(200):
            pids = [pid for name in NAMES for pid in self.pids(name)]
            if not pids:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"processes outlived their supervisor: {pids}")

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    def pids(self, name: str) -> list[int]:
        """Processes of one service, `ROLE-REPLICA`, by their command line."""
        role, _, replica = name.partition("-")
        config, found = f"{self.setting.run}/config.toml".encode(), []
        for entry in Path("/proc").iterdir():
            words = _command(entry) if entry.name.isdigit() else []
            if config in words and f"services.{role}".encode() in words and words[-1:] == [replica.encode()]:
                found.append(int(entry.name))
        return found

    def signal(self, name: str, number: int) -> list[int]:
        """Signal a service; the processes that got it."""
        pids = self.pids(name)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    @property
    def steps(self) -> int:
        """Steps of the surviving lineage so far."""
        with contextlib.suppress(OSError):
            return (self.setting.run / "metrics.jsonl").read_bytes().count(b"\n")
        return 0


def resident_mb(pid: int) -> float:
    """Resident memory of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def _command(entry: Path) -> list[bytes]:
    try:
        return (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []
