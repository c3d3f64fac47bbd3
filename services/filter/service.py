"""The filter's loop: whatever came, one decision, one transaction.

    scored, feedback, queue statistics  ->  planner  ->  give(prompts, batches, settles, state)

Waits for any of its inputs; unblocked by a scored group, a trained batch, or a rollout with room. Every transaction
carries the whole state into the register `filter` by compare-and-set: if another filter is alive, or if this one missed
an answer, it is refused, the process ends, and its successor reads the register anew.
"""

import asyncio
import logging
import time
from pathlib import Path

import msgspec

from common import codec
from common.client import Delivery, Inbox, QueueClient, Watched
from common.errors import UserError, WireError
from common.history import History
from common.messages import BATCHES, FEEDBACK, GROUPS, PROMPTS, RUN, SCORED, Feedback, RunState
from common.protocol import QueueStats, Write
from common.stages import Stage
from common.watchdog import WORKERS, Watchdog
from services.filter.evaluation import write_evals
from services.filter.excerpts import FILE as EXCERPTS_FILE
from services.filter.excerpts import Excerpts
from services.filter.measures import Measures, show_run
from services.filter.planner import Planner, Transaction
from services.filter.sampling import files
from services.filter.sampling.record import FILE as RECORD_FILE
from services.filter.sampling.record import Record
from services.filter.state import dumps

log = logging.getLogger(__name__)

REGISTER = "filter"
EVALS_FILE = "evals.jsonl"


class FilterService:
    """Joins the planner to the queues. One task decides; the others only bring it what came."""

    def __init__(
        self, *, client: QueueClient, planner: Planner, version: int, history: History, folder: Path,
        steps: int, reserve: int, low_keep_rate: float, excerpts: int = 0, stall_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._client = client
        self._planner = planner
        self._version = version
        self._history = history
        self._measures = Measures(low_keep_rate=low_keep_rate)
        self._folder = folder
        self._record = Record(folder / RECORD_FILE)
        self._excerpts = Excerpts(folder / EXCERPTS_FILE, steps=steps, quota=excerpts)
        self._steps = steps
        self._reserve = reserve
        self._stage = Stage("filter")
        self._news = asyncio.Event()
        self._waiting: list[Delivery] = []
        self._stats: dict[str, QueueStats] = {}
        self._queues = {queue: client.watch(f"queue/{queue}") for queue in WORKERS}
        self._watchdog = Watchdog("filter", stall_s=stall_s, queues=self._queues)
        self._stalled = ""
        """Why the run gets nowhere, once it has for too long."""
        self._run_state: RunState | None = None
        """As this process last wrote it."""

    async def run(self, *, window: int) -> None:
        """All inputs into one loop, for ever."""
        self._measures.show(self._planner.state, pool=0)
        self._write_record()
        files.keep_only(self._folder, self._planner.state.sampler.file)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect(self._client.take(SCORED, window=window)))
            tasks.create_task(self._collect(self._client.take(FEEDBACK, window=16)))
            for queue in (PROMPTS, GROUPS, SCORED):
                tasks.create_task(self._follow(queue, self._queues[queue]))
            tasks.create_task(self._watch())
            tasks.create_task(self._decide())

    async def _collect(self, inbox: Inbox) -> None:
        """Deliveries -> the list that the next decision takes."""
        while True:
            item = await inbox.get()  # not inside append(): the list is exchanged while this waits
            self._waiting.append(item)
            self._watchdog.beat()
            self._news.set()

    async def _follow(self, queue: str, watched: Watched) -> None:
        """Queue statistics -> the newest value."""
        while True:
            register = await watched.changed()
            self._stats[queue] = msgspec.msgpack.decode(register.value, type=QueueStats)
            self._news.set()

    async def _watch(self) -> None:
        """A run that gets nowhere is failed, for all to see. Waits for that."""
        try:
            await self._watchdog.watch(lambda: not self._planner.finished)
        except UserError as stall:
            self._stalled = str(stall)
            self._news.set()

    async def _decide(self) -> None:
        """Events -> transactions, until the run cannot go on. Waits until something came."""
        while True:
            with self._stage.starved():
                await self._news.wait()
            self._news.clear()
            with self._stage.busy():
                transaction = self._next_transaction()
                transaction.failure = transaction.failure or self._stalled
                run_state = self._next_run_state(transaction.failure)
            if transaction or run_state != self._run_state:
                await self._commit(transaction, run_state)
            if transaction.failure:
                raise UserError(transaction.failure)

    def _next_transaction(self) -> Transaction:
        """Everything that came into the planner, then one plan: a place that feedback frees is used at once."""
        items, self._waiting = self._waiting, []
        for item in items:
            self._feed(item)
        for stats in self._stats.values():
            self._planner.on_dead(stats.dead)
        return self._planner.plan(self._room(), now=time.time())

    def _feed(self, item: Delivery) -> None:
        """One delivery to the planner. Feedback that does not decode is a bug of the learner and ends this process."""
        if item.queue == FEEDBACK:
            self._planner.on_feedback(item.lease, codec.decode(Feedback, item.frames))
            return
        try:
            scored, _ = codec.decode_scored(item.frames)
            if scored.group.prompt.id != item.id:
                raise WireError(f"group {scored.group.prompt.id} came under the name {item.id}")
        except WireError as error:
            log.error("scored group dropped", extra={"item": item.id, "cause": str(error)})
            self._planner.on_malformed(item.lease, item.id)
        else:
            self._planner.on_scored(item.lease, scored, item.frames[1:])
            self._excerpts.offer(scored, step=self._planner.state.next_step, reason=self._planner.drop_reason(scored))

    def _room(self) -> int:
        """Prompts that waiting rollouts would take, plus the reserve, less those ready."""
        stats = self._stats.get(PROMPTS)
        return max(0, stats.credit + self._reserve - stats.ready) if stats else 0

    def _next_run_state(self, failure: str) -> RunState:
        step = min(self._planner.state.version, self._steps)
        if failure:
            return RunState(phase="failed", step=step, message=failure)
        done = self._planner.finished and not self._planner.state.sampler.finished
        return RunState(phase="done" if done else "running", step=step)

    async def _commit(self, transaction: Transaction, run_state: RunState) -> None:
        """Write the files, then everything at once; what is not committed is written again by the successor."""
        tx = self._version + 1
        write_evals(self._folder / EVALS_FILE, self._planner.state.evals)
        if (file := self._planner.sampler.file()) is not None:
            files.write(self._folder, *file)
        for event, fields in transaction.events or [("decided", {})]:
            self._history.append(event, tx=tx, **fields)
        writes = [Write(register=REGISTER, value=dumps(self._planner.state), expected=self._version)]
        if run_state != self._run_state:
            writes.append(Write(register=RUN, value=codec.encode(run_state)[0]))
        with self._stage.blocked():
            await self._client.give(*transaction.items, settles=transaction.settles, reason="decided", writes=writes)
        self._version, self._run_state = tx, run_state
        show_run(run_state)
        self._write_record()
        if file is not None:
            files.keep_only(self._folder, file[0])
        self._count_given(sum(item.queue == PROMPTS for item in transaction.items))
        self._measures.batches(transaction.ages, number=sum(item.queue == BATCHES for item in transaction.items))
        self._measures.show(self._planner.state, pool=len(self._planner.pool))

    def _write_record(self) -> None:
        """The lines of steps that the committed state brought; the next commit is without them.

        The run is not done before they are written: then this process may be ended at any moment.
        """
        lines = self._planner.state.sampler.finished
        if lines:
            self._record.append(lines)
            lines.clear()
            self._news.set()

    def _count_given(self, prompts: int) -> None:
        """Prompts just given use up room before the broker's next statistics say so."""
        if PROMPTS in self._stats:
            stats = self._stats[PROMPTS]
            self._stats[PROMPTS] = msgspec.structs.replace(stats, ready=stats.ready + prompts)
