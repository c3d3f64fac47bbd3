"""A disk without room: how it is told from other errors, and how long to wait for somebody to make some.

await until_room(write, wait_s=60.0, on_wait=...)        tries again until the disk has room, then gives up
"""

import asyncio
import errno
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from common.errors import UserError

T = TypeVar("T")

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)
RETRY_S = 1.0


def is_full(error: BaseException) -> bool:
    """Whether this says that a disk, or a quota, has no room."""
    return isinstance(error, OSError) and error.errno in FULL


def full_message(folder: Path) -> str:
    """One sentence for the user."""
    return f"the disk of {folder} is full ({_free_mb(folder)}): make room, then go on with --resume"


async def until_room(
    write: Callable[[], Awaitable[T]], *, folder: Path, wait_s: float, on_wait: Callable[[bool], None]
) -> T:
    """What `write` returns; while the disk is full it is tried again, at most `wait_s`, then `UserError`.

    `on_wait(True)` is called at every failure, `on_wait(False)` at the end: what shows it to the world.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            result = await write()
        except OSError as error:
            if not is_full(error):
                raise
            on_wait(True)
            log.error("disk full", extra={"folder": str(folder), "free": _free_mb(folder)})
            if time.monotonic() >= deadline:
                raise UserError(full_message(folder)) from error
            await asyncio.sleep(min(RETRY_S, wait_s))
        else:
            on_wait(False)
            return result


def _free_mb(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 2**20:.0f} MiB free"
    except OSError:
        return "free space unknown"
