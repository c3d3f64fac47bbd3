"""The filter's loop: whatever came, one decision, one transaction.

    scored, feedback, queue statistics  ->  planner  ->  give(prompts, batches, settles, state)

Waits for any of its inputs; unblocked by a scored group, a trained batch, or a rollout with room. Every transaction
carries the whole state into the register `filter` by compare-and-set: if another filter is alive, or if this one missed
an answer, it is refused, the process ends, and its successor reads the register anew.
"""

import asyncio
import json
import logging
import time
from pathlib import Path

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from common import codec
from common.client import Delivery, Inbox, QueueClient, Watched
from common.errors import UserError, WireError
from common.history import History
from common.messages import FEEDBACK, GROUPS, PROMPTS, RUN, SCORED, Feedback, RunState
from common.protocol import QueueStats, Write
from common.stages import Stage
from services.filter.planner import Planner, Transaction
from services.filter.state import FilterState, dumps

log = logging.getLogger(__name__)

REGISTER = "filter"
FATES = Gauge("dapo_filter_groups", "Groups by what became of them.", ["fate"])
KEEP_RATE = Gauge("dapo_filter_keep_rate_ratio", "Share of judged groups that were kept.")
POOL = Gauge("dapo_filter_pool_groups", "Accepted groups that wait for their batch.")
AGE = Histogram("dapo_filter_age_versions", "Age of a group when its batch closed.", buckets=(0, 1, 2, 4, 8, 16))
EVAL = Gauge("dapo_filter_eval_accuracy_ratio", "Accuracy on the held-out rows at the newest evaluation.")
BATCHES_CLOSED = Counter("dapo_filter_batches_total", "Batches closed.")


class FilterService:
    """Joins the planner to the queues."""

    def __init__(
        self, *, client: QueueClient, planner: Planner, version: int, history: History, folder: Path,
        steps: int, reserve: int, low_keep_rate: float,
    ) -> None:  # fmt: skip
        self._client = client
        self._planner = planner
        self._version = version
        self._history = history
        self._folder = folder
        self._steps = steps
        self._reserve = reserve
        self._low_keep_rate = low_keep_rate
        self._stage = Stage("filter")
        self._news = asyncio.Event()
        self._waiting: list[Delivery] = []
        self._stats: dict[str, QueueStats] = {}
        self._phase = "running"

    async def run(self, *, window: int) -> None:
        """All inputs into one loop, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect(self._client.take(SCORED, window=window)))
            tasks.create_task(self._collect(self._client.take(FEEDBACK, window=16)))
            for queue in (PROMPTS, GROUPS, SCORED):
                tasks.create_task(self._follow(queue, self._client.watch(f"queue/{queue}")))
            tasks.create_task(self._decide())

    async def _collect(self, inbox: Inbox) -> None:
        """Deliveries -> the list that the next decision takes."""
        while True:
            item = await inbox.get()  # not inside append(): the list is exchanged while this waits
            self._waiting.append(item)
            self._news.set()

    async def _follow(self, queue: str, watched: Watched) -> None:
        """Queue statistics -> the newest value."""
        while True:
            register = await watched.changed()
            self._stats[queue] = msgspec.msgpack.decode(register.value, type=QueueStats)
            self._news.set()

    async def _decide(self) -> None:
        """Events -> transactions. Waits until something came."""
        while True:
            with self._stage.starved():
                await self._news.wait()
            self._news.clear()
            with self._stage.busy():
                transaction = await self._next_transaction()
            if transaction or (self._phase == "running" and self._planner.finished):
                await self._commit(transaction)

    async def _next_transaction(self) -> Transaction:
        items, self._waiting = self._waiting, []
        for item in sorted(items, key=lambda item: item.queue != FEEDBACK):
            self._feed(item)
        for stats in self._stats.values():
            self._planner.on_dead(stats.dead)
        try:
            return self._planner.plan(self._room())
        except UserError as error:
            await self._client.give(writes=[self._run_write("failed", str(error))])
            raise

    def _feed(self, item: Delivery) -> None:
        """One delivery to the planner; what cannot be decoded is left to the dead letters."""
        try:
            if item.queue == FEEDBACK:
                self._planner.on_feedback(item.lease, codec.decode(Feedback, item.frames))
            else:
                scored, _ = codec.decode_scored(item.frames)
                self._planner.on_scored(item.lease, scored, item.frames[1:])
        except WireError as error:
            log.error("item cannot be decoded", extra={"queue": item.queue, "item": item.id, "cause": str(error)})
            self._client.abandon(item.lease)

    def _room(self) -> int:
        """Prompts that waiting rollouts would take, plus the reserve, less those ready."""
        stats = self._stats.get(PROMPTS)
        if stats is None:
            return 0
        return max(0, stats.credit + self._reserve - stats.ready)

    async def _commit(self, transaction: Transaction) -> None:
        """Write the history, then everything at once."""
        tx = self._version + 1
        for event, fields in transaction.events:
            self._history.append(event, tx=tx, **fields)
            if event == "batched":
                AGE.observe(fields["step"] - fields["oldest"])
                BATCHES_CLOSED.inc()
        if self._planner.finished:
            self._phase = "done"
        writes = [
            Write(register=REGISTER, value=dumps(self._planner.state), expected=self._version),
            self._run_write(self._phase),
        ]
        with self._stage.blocked():
            await self._client.give(*transaction.items, settles=transaction.settles, reason="decided", writes=writes)
        self._version = tx
        self._measure()

    def _run_write(self, phase: str, message: str = "") -> Write:
        step = min(self._planner.state.version, self._steps)
        state = RunState(phase=phase, step=step, message=message)  # type: ignore[arg-type]
        return Write(register=RUN, value=codec.encode(state)[0])

    def _measure(self) -> None:
        state = self._planner.state
        for name, value in self._planner.totals().items():
            if name != "keep_rate":
                FATES.labels(name).set(value)
        KEEP_RATE.set(state.keep_rate)
        POOL.set(len(self._planner.pool))
        judged = state.trained + sum(state.dropped.values())
        if judged >= 50 and state.keep_rate < self._low_keep_rate:
            log.warning("low keep rate", extra={"kept": round(state.keep_rate, 4), "dropped": state.dropped})
        write_evals(self._folder / "evals.jsonl", state)


def write_evals(path: Path, state: FilterState) -> None:
    """Rewrite evals.jsonl when an evaluation has finished since."""
    finished = {version: tally for version, tally in sorted(state.evals.items()) if tally.finished}
    old = path.read_text().splitlines() if path.exists() else []
    if len(old) == len(finished):
        return
    lines = old[: len(finished)]
    for version, tally in list(finished.items())[len(lines) :]:
        EVAL.set(tally.accuracy)
        lines.append(json.dumps({
            "version": version, "accuracy": tally.accuracy, "correct": tally.correct, "rows": tally.rows,
            "errors": tally.errors, "min_version": tally.min_version, "max_version": tally.max_version,
            "time": time.time(),
        }))  # fmt: skip
    path.write_text("".join(f"{line}\n" for line in lines))
