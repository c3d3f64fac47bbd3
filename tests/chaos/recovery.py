"""How long a service takes to work again, as its files and its socket show.

    filter, rollout, reward, learner   the first event of its next incarnation (or, stopped, its next event)
    broker                             a Welcome for a Hello on its own port

Events come with work, so a service that is ready before there is work for it counts as slower than it is.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import zmq
import zmq.asyncio

from common import protocol
from common.protocol import Hello, Welcome
from tests.chaos.setting import Setting

LIMIT_S = 60.0
EVERY_S = 0.05


class Recovery:
    """Seconds by role."""

    def __init__(self, setting: Setting) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.unrecovered: list[str] = []
        """Services that were not seen again within `LIMIT_S`, while the run went on."""
        self._setting = setting
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, name: str, *, killed: bool) -> None:
        """A service was killed, or goes on after it was stopped: from now on its recovery is timed."""
        newest, size = self._newest(name)
        if name.startswith("broker"):
            back: Callable[[], bool] | None = None
        elif killed:
            back = lambda: self._newest(name)[0] != newest and self._newest(name)[1] > 0  # noqa: E731
        else:
            back = lambda: self._newest(name) != (newest, size)  # noqa: E731
        task = asyncio.create_task(self._time(name, back))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self) -> None:
        """The whole run was killed: what was being timed has lost its meaning."""
        for task in list(self._tasks):
            task.cancel()

    async def _time(self, name: str, back: Callable[[], bool] | None) -> None:
        start = time.monotonic()
        while time.monotonic() - start < LIMIT_S:
            if back() if back else await self._welcome():
                self.seconds[name.partition("-")[0]].append(time.monotonic() - start)
                return
            await asyncio.sleep(EVERY_S)
        self.unrecovered.append(name)

    def _newest(self, name: str) -> tuple[str, int]:
        """File and size of the history of the newest incarnation."""
        paths = sorted((self._setting.run / "history").glob(f"{name}-*.msgpack"))
        with contextlib.suppress(OSError, IndexError):
            return paths[-1].name, paths[-1].stat().st_size
        return "", 0

    async def _welcome(self) -> bool:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(f"tcp://127.0.0.1:{self._setting.broker}")
            await dealer.send_multipart(protocol.sealed(Hello(name="probe", incarnation="probe")))
            if not await dealer.poll(1000):
                return False
            content = protocol.unsealed(await dealer.recv_multipart())
            return content is not None and isinstance(protocol.from_broker_decoder.decode(content[0]), Welcome)


def small_disk(folder: Path) -> str:
    """Why a small file system cannot be mounted here, or nothing; then it is."""
    import subprocess

    folder.mkdir()
    answer = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512m", "none", str(folder)], capture_output=True, text=True, check=False
    )
    return answer.stderr.strip() if answer.returncode else ""
