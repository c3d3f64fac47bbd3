"""One service as a child process: its command, its output file, its end.

Every child leads a process group of its own, so that Ctrl-C in the terminal reaches the supervisor alone, and so that
what a killed service has started (vLLM's engine process) is ended with it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to start."""

    name: str
    """`ROLE-REPLICA`."""
    command: Sequence[str]
    output: Path
    """Its stdout and stderr, appended."""
    environment: Mapping[str, str] = field(repr=False)


@dataclass(kw_only=True)
class Child:
    """A running service."""

    spec: Spec
    process: asyncio.subprocess.Process
    output_start: int
    """Length of the output file when this incarnation began."""

    @classmethod
    async def start(cls, spec: Spec) -> "Child":
        """Start it."""
        with spec.output.open("ab") as output:
            start = output.tell()
            process = await asyncio.create_subprocess_exec(
                *spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=spec.environment,
                start_new_session=True,
            )
            return cls(spec=spec, process=process, output_start=start)

    async def ended(self) -> int:
        """Wait for its end and end what it left behind; the exit status, -N for signal N."""
        status = await self.process.wait()
        self._signal_group(signal.SIGKILL)
        return status

    async def stop(self, grace_s: float) -> None:
        """Ask it to end; kill it after `grace_s`. Returns when it has ended."""
        self.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), grace_s)
        except TimeoutError:
            self.kill()
        await self.ended()

    def terminate(self) -> None:
        """SIGTERM to the service itself; it ends what it has started."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the service and all that it has started."""
        self._signal_group(signal.SIGKILL)

    def output(self) -> list[str]:
        """The last lines this incarnation wrote."""
        with self.spec.output.open("rb") as file:
            file.seek(max(self.output_start, self.spec.output.stat().st_size - (64 << 10)))
            return file.read().decode(errors="replace").splitlines()

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def sentence(lines: Sequence[str]) -> str:
    """What a service that ended with status 2 told its user: the last line `dapo ROLE: ...`, else the last line."""
    said = [line for line in lines if line.strip()]
    for line in reversed(said):
        program, colon, text = line.partition(": ")
        if colon and program.startswith("dapo "):
            return text
    return said[-1] if said else "it said nothing"
