"""Every item of an inbox is a task of its own, as many at a time as the inbox's window allows.

    inbox -> work(item), side by side, for ever

Waits for an item; the window of the inbox bounds how many are in work. An exception of `work` ends the loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from common.inbox import Delivery, Inbox
from common.stages import Stage


async def for_each(inbox: Inbox, work: Callable[[Delivery], Coroutine[Any, Any, None]], *, stage: Stage) -> None:
    """Work on what comes, for ever; the stage is busy while anything is in work, else starved."""
    async with asyncio.TaskGroup() as tasks:
        in_work: set[asyncio.Task[None]] = set()
        while True:
            item = tasks.create_task(inbox.get())
            while not item.done():
                with stage.busy() if in_work else stage.starved():
                    await asyncio.wait([item, *in_work], return_when=asyncio.FIRST_COMPLETED)
                in_work = {task for task in in_work if not task.done()}
            in_work.add(tasks.create_task(work(item.result())))
