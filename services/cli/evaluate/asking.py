"""Held-out rows to a tally, in the place of the filter and the learner.

register `policy` <- the weights to evaluate
prompts -> rollouts -> groups -> rewards -> scored -> tally          until every row came back or is dead
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec

from common import codec
from common.client import Delivery, Item, QueueClient, connect_to_broker
from common.config import RunConfig
from common.errors import RefusedError, WireError
from common.messages import GROUPS, POLICY, PROMPTS, SCORED, Policy, Prompt, Sampling
from common.protocol import QueueStats, Write
from services.filter.config import FilterConfig
from services.filter.evaluation import PREFIX, add, sampling
from services.filter.schema import Row
from services.filter.state import EvalTally

AT_ONCE = 256
"""Prompts given in one transaction."""
WINDOW = 64


class Asking:
    """One evaluation under way."""

    def __init__(self, num_rows: int, config: FilterConfig, report: Callable[[EvalTally], None]) -> None:
        self.tally = EvalTally(rows=num_rows, samples=config.eval_samples)
        self._config = config
        self._report = report
        self._counted: set[str] = set()
        self._finished = asyncio.Event()

    async def run(self, run: RunConfig, policy: Policy, rows: Sequence[Row]) -> None:
        """Have every row answered. Waits for rollouts and rewards, without limit."""
        items = [_item(n, row, sampling(run, self._config, n), policy.version) for n, row in enumerate(rows)]
        async with connect_to_broker(run, "evaluation-0") as client:
            await client.give(writes=[Write(register=POLICY, value=codec.encode(policy)[0], expected=0)])
            for at in range(0, len(items), AT_ONCE):
                await client.give(*items[at : at + AT_ONCE])
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._bury(client, queue)) for queue in (PROMPTS, GROUPS)]
                tasks.append(group.create_task(self._count(client)))
                await self._finished.wait()
                for task in tasks:
                    task.cancel()

    async def _count(self, client: QueueClient) -> None:
        """Scored groups -> tally, for ever. Waits for rewards."""
        inbox = client.take(SCORED, window=WINDOW)
        while True:
            item = await inbox.get()
            self._add(item)
            with contextlib.suppress(RefusedError):  # the lease was lost: it comes again and is not counted again
                await client.settle([item.lease], reason="evaluated")
            self._progress()

    def _add(self, item: Delivery) -> None:
        """Count a row once, however often it is delivered; one that nobody can read counts as not answered."""
        if item.id in self._counted:
            return
        self._counted.add(item.id)
        try:
            add(self.tally, codec.decode_scored(item.frames)[0].verdicts)
        except WireError:
            self.tally.dead.append(item.id)

    async def _bury(self, client: QueueClient, queue: str) -> None:
        """Dead letters of a queue -> tally, for ever. Waits for the broker to report one."""
        watched = client.watch(f"queue/{queue}")
        while True:
            register = await watched.changed()
            stats = msgspec.msgpack.decode(register.value, type=QueueStats) if register.version else QueueStats()
            self.tally.dead += [name for name in stats.dead if name not in self._counted]
            self._counted.update(stats.dead)
            self._progress()

    def _progress(self) -> None:
        self._report(self.tally)
        if self.tally.finished:
            self._finished.set()


def share(tally: EvalTally) -> float:
    """How much of an evaluation is done."""
    return (tally.answered + len(tally.dead)) / tally.rows


def _item(place: int, row: Row, how: Sampling, version: int) -> Item:
    prompt = Prompt(
        id=f"{PREFIX}{version}/{place:06d}", kind="eval", row=place, chat=list(row.chat), task=row.task,
        sampling=how, min_version=version,
    )  # fmt: skip
    return Item(PROMPTS, prompt.id, codec.encode(prompt))
