"""How long a killed service takes until it works again, as the broker sees it.

all but the broker   a new incarnation has said Hello, which every service does when its model or its data are loaded
broker               a Welcome for a Hello on its own port
"""

import asyncio
import contextlib
import sqlite3
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import zmq
import zmq.asyncio

from common import protocol
from common.protocol import Hello, Welcome
from tests.chaos.setting import Setting

LIMIT_S = 120.0
EVERY_S = 0.05


class Recovery:
    """Seconds by role."""

    def __init__(self, setting: Setting) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.unrecovered: list[str] = []
        """Services that were not seen again within `LIMIT_S`, while the run went on."""
        self._setting = setting
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, name: str) -> None:
        """A service was killed just now: its recovery is timed."""
        task = asyncio.create_task(self._time(name, self._incarnation(name)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self) -> None:
        """The whole run was killed: what was being timed has lost its meaning."""
        for task in list(self._tasks):
            task.cancel()

    async def _time(self, name: str, before: str) -> None:
        start = time.monotonic()
        while time.monotonic() - start < LIMIT_S:
            is_back = await self._welcome() if name == "broker-0" else self._incarnation(name) not in ("", before)
            if is_back:
                self.seconds[name.partition("-")[0]].append(time.monotonic() - start)
                return
            await asyncio.sleep(EVERY_S)
        self.unrecovered.append(name)

    def _incarnation(self, name: str) -> str:
        """Of the service's session, as the broker has committed it."""
        with contextlib.suppress(sqlite3.Error):
            with contextlib.closing(sqlite3.connect(f"file:{self._setting.run}/broker.db?mode=ro", uri=True)) as db:
                row = db.execute("SELECT incarnation FROM sessions WHERE name=?", (name,)).fetchone()
            return str(row[0]) if row else ""
        return ""

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
    folder.mkdir()
    answer = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512m", "none", str(folder)], capture_output=True, text=True, check=False
    )
    return answer.stderr.strip() if answer.returncode else ""
