"""The filter's loop over the real broker core and client, with scripted rollouts and a scripted learner."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgpack
import numpy as np
import pytest

from common import codec
from common.client import Item, QueueClient
from common.codec import Arrays
from common.errors import RefusedError, UserError
from common.history import History
from common.life import _mistake_in
from common.messages import BATCHES, FEEDBACK, PROMPTS, RUN, SCORED, Batch, Feedback, Prompt, RunState
from services.filter.sampling import files
from services.filter.service import REGISTER, FilterService
from services.filter.state import FilterState, loads
from tests.memory_broker import LEASE_S, MemoryBroker
from tests.unit.filter.makers import is_kept, make_planner, make_run, make_scored

LIMIT_S = 20.0


class Bench:
    """A run among scripted services; each is a task that can be cancelled."""

    def __init__(self, folder: Path, broker: MemoryBroker, *, held_out: int = 0, drop_rate: float = 0.3, **run: object):
        self.folder = folder
        self.broker = broker
        self.run = make_run(**({"steps": 5, "groups_per_batch": 3, "max_staleness": 0} | run))
        self.drop_rate = drop_rate
        self.held_out = held_out
        self.cap = 0
        self.stall_s = 0.0
        self.keys: dict[str, object] = {}
        self.batches: list[list[str]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start_filter(self, name: str = "filter-0", *, dies: bool = False) -> asyncio.Task[None]:
        return self._start(self._filter(name, dies=dies))

    def start_rollout(self, *, window: int = 4) -> asyncio.Task[None]:
        return self._start(self._rollout(window))

    def start_learner(self) -> asyncio.Task[None]:
        return self._start(self._learner())

    def _start(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self._tasks.append(task)
        return task

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let everybody work until it holds; what ends in between is an error."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                await asyncio.sleep(0)
                for task in self._tasks:
                    if task.done() and not task.cancelled():
                        task.result()

    @property
    def state(self) -> FilterState:
        return loads(self.broker.register(REGISTER)[1])

    @property
    def run_state(self) -> RunState | None:
        version, value = self.broker.register(RUN)
        return codec.decode(RunState, [value]) if version else None

    def is_done(self) -> bool:
        return self.run_state is not None and self.run_state.phase == "done"

    def events(self) -> list[dict[str, object]]:
        """All that any filter wrote into its history."""
        unpacker = msgpack.Unpacker(strict_map_key=False)
        for path in sorted((self.folder / "history").glob("filter-*.msgpack")):
            unpacker.feed(path.read_bytes())
        return list(unpacker)

    async def _filter(self, name: str, *, dies: bool) -> None:
        """As services/filter/__main__.py does."""
        history = History(self.folder / "history", name)
        try:
            async with self.broker.client(name, dies=dies) as client:
                register = await client.watch(REGISTER).changed()
                state = loads(register.value)
                planner = make_planner(
                    state, self.run, held_out=self.held_out, eval_every=2, max_dropped_in_a_row=self.cap,
                    file=files.read(self.folder, state.sampler.file), **self.keys,
                )  # fmt: skip
                service = FilterService(
                    client=client, planner=planner, version=register.version, history=history, folder=self.folder,
                    steps=self.run.steps, reserve=2, low_keep_rate=0.1, stall_s=self.stall_s,
                )  # fmt: skip
                await service.run(window=50)
        finally:
            history.close()

    async def _rollout(self, window: int) -> None:
        """Prompts -> scored; the reward service is left out."""
        async with self.broker.client("rollout-0") as client:
            inbox = client.take(PROMPTS, window=window)
            while True:
                item = await inbox.get()
                prompt = codec.decode(Prompt, item.frames)
                await client.give(self.scored(prompt), settles=[item.lease])

    def scored(self, prompt: Prompt) -> Item:
        kept = prompt.kind == "eval" or is_kept(prompt.id, seed=7, drop_rate=self.drop_rate)
        accuracies = (1, 0) if kept else (0, 0)
        scored = make_scored(
            prompt, versions=[prompt.min_version], accuracies=accuracies[: prompt.sampling.n]
        )  # fmt: skip
        n = len(scored.group.samples)
        arrays = Arrays(*(np.zeros(size, dtype) for size, dtype in ((1, "<i4"), (n, "<i4"), (n, "<f4"))))
        return Item(SCORED, prompt.id, codec.encode(scored, arrays))

    async def _learner(self) -> None:
        """Batches -> feedback, in order."""
        async with self.broker.client("learner-0") as client:
            inbox = client.take(BATCHES, window=2)
            while True:
                item = await inbox.get()
                batch, _ = codec.decode_batch(item.frames)
                assert batch.step == len(self.batches)
                self.batches.append([scored.group.prompt.id for scored in batch.groups])
                feedback = Feedback(step=batch.step, version=batch.step + 1, groups=[])
                await client.give(Item(FEEDBACK, item.id, codec.encode(feedback)), settles=[item.lease])


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MemoryBroker]:
    async with MemoryBroker(tmp_path, max_deliveries=3) as broker:
        yield broker


@contextlib.asynccontextmanager
async def bench(tmp_path: Path, broker: MemoryBroker, **options: object) -> AsyncIterator[Bench]:
    subject = Bench(tmp_path, broker, **options)  # type: ignore[arg-type]
    try:
        yield subject
    finally:
        await subject.stop()


async def undisturbed(folder: Path, **options: object) -> list[list[str]]:
    """The batches of a run in which nothing goes wrong."""
    os.mkdir(folder)
    async with MemoryBroker(folder) as broker, bench(folder, broker, **options) as subject:
        subject.start_filter()
        subject.start_rollout()
        subject.start_learner()
        await subject.until(subject.is_done)
        return subject.batches


async def test_a_run_ends_done_with_every_group_accounted_for(tmp_path: Path, broker: MemoryBroker) -> None:
    async with bench(tmp_path, broker, max_staleness=1, held_out=2) as subject:
        for start in (subject.start_filter, subject.start_rollout, subject.start_learner):
            start()
        await subject.until(subject.is_done)
        state = subject.state
    assert (state.trained, state.num_outstanding) == (15, 0)
    assert state.issued == 15 + state.dropped.get("all_wrong", 0)
    assert [broker.ids(queue) for queue in (PROMPTS, SCORED, BATCHES, FEEDBACK)] == [[], [], [], []]
    rows = [json.loads(line) for line in (tmp_path / "evals.jsonl").read_text().splitlines()]
    assert (rows[0]["version"], rows[0]["rows"], rows[0]["accuracy"]) == (0, 2, 1.0)
    assert rows[-1]["version"] == 5


async def test_the_history_tells_the_same_story_as_the_account(tmp_path: Path, broker: MemoryBroker) -> None:
    async with bench(tmp_path, broker) as subject:
        for start in (subject.start_filter, subject.start_rollout, subject.start_learner):
            start()
        await subject.until(subject.is_done)
        state, committed = subject.state, broker.register(REGISTER)[0]
    events = subject.events()
    assert all(event["tx"] <= committed for event in events)  # type: ignore[operator]
    assert len({e["id"] for e in events if e["event"] == "issued"}) == state.issued
    assert [e["ids"] for e in events if e["event"] == "batched"] == subject.batches
    fates = [(e["fate"], e["reason"]) for e in events if e["event"] == "settled"]
    assert fates.count(("trained", "")) == state.trained
    assert fates.count(("dropped", "all_wrong")) == state.dropped["all_wrong"]


@pytest.mark.parametrize("dies", [True, False])
async def test_a_filter_stopped_again_and_again_closes_the_batches_that_one_left_alone_does(
    tmp_path: Path, broker: MemoryBroker, *, dies: bool
) -> None:
    # D26; with staleness 0 the batches depend on nothing but the seed
    expected = await undisturbed(tmp_path / "twin", steps=8)
    broker._max_deliveries = 1000
    async with bench(tmp_path, broker, steps=8) as subject:
        subject.start_rollout()
        subject.start_learner()
        while not subject.is_done():
            life = subject.start_filter(dies=dies)
            written = broker.register(REGISTER)[0]
            await subject.until(lambda at=written: broker.register(REGISTER)[0] >= at + 2 or subject.is_done())  # type: ignore[misc]
            life.cancel()
            await asyncio.wait([life])
        state = subject.state
    assert subject.batches == expected
    assert (state.trained, state.num_outstanding) == (24, 0)


async def test_every_transaction_has_an_event_so_that_one_that_was_never_committed_is_overruled(
    tmp_path: Path, broker: MemoryBroker
) -> None:
    # the second filter finds its reserve of prompts waiting: its first transaction only says that it is running
    async with bench(tmp_path, broker) as subject:
        for _ in range(2):
            written = broker.register(REGISTER)[0]
            task = subject.start_filter()
            await subject.until(lambda at=written: broker.register(REGISTER)[0] > at)  # type: ignore[misc]
            await subject.until(lambda: len(broker.ids(PROMPTS)) == 2)
            task.cancel()
            await asyncio.wait([task])
            subject._tasks.clear()
    by_tx = {event["tx"]: event["event"] for event in subject.events()}
    assert by_tx == {1: "issued", 2: "decided"}


@pytest.mark.parametrize("dies", [True, False])
async def test_of_an_adaptive_filter_stopped_again_and_again_every_draw_and_step_is_on_record(
    tmp_path: Path, broker: MemoryBroker, *, dies: bool
) -> None:
    broker._max_deliveries = 1000
    async with bench(tmp_path, broker, steps=80, max_staleness=1) as subject:
        subject.keys = {"sampling": "signal", "rows": 400}
        subject.start_rollout()
        subject.start_learner()
        while not subject.is_done():
            life = subject.start_filter(dies=dies)
            written = broker.register(REGISTER)[0]
            await subject.until(lambda at=written: broker.register(REGISTER)[0] >= at + 5 or subject.is_done())  # type: ignore[misc]
            life.cancel()
            await asyncio.wait([life])
        state = subject.state
    record = [json.loads(line) for line in (tmp_path / "sampling.jsonl").read_text().splitlines()]
    assert [row["step"] for row in record] == list(range(80))
    assert sum(c["draws"] for row in record for c in row["categories"].values()) == state.issued
    assert (state.trained, state.num_outstanding, state.sampler.drawn) == (240, 0, {})
    # of 240 / 0.7 draws one in four is a new prompt, more than 64, so their file was written; the last death may have
    # come before the one before it was removed
    left = {path.name for path in (tmp_path / "sampling").iterdir()}
    assert state.sampler.file in left
    assert len(left) <= 2


async def test_a_broker_that_restarts_loses_nothing(tmp_path: Path, broker: MemoryBroker) -> None:
    expected = await undisturbed(tmp_path / "twin", steps=8)
    async with bench(tmp_path, broker, steps=8) as subject:
        for start in (subject.start_filter, subject.start_rollout, subject.start_learner):
            start()
        for step in (1, 3, 5):
            await subject.until(lambda at=step: len(subject.batches) >= at)  # type: ignore[misc]
            broker.restart()
        await subject.until(subject.is_done)
    assert subject.batches == expected


async def test_of_two_filters_one_ends(tmp_path: Path, broker: MemoryBroker) -> None:
    async with bench(tmp_path, broker) as subject:
        filters = {subject.start_filter(name) for name in ("filter-0", "filter-1")}
        async with asyncio.timeout(LIMIT_S):
            done, alive = await asyncio.wait(filters, return_when=asyncio.FIRST_COMPLETED)
        assert len(alive) == 1
        error = done.pop().exception()
        assert isinstance(error, BaseExceptionGroup)
        assert error.subgroup(RefusedError) is not None
        subject._tasks = list(alive)
        subject.start_rollout()
        subject.start_learner()
        await subject.until(subject.is_done)
        assert subject.state.trained == 15


async def test_at_the_cap_the_run_fails_with_one_sentence_and_an_exact_account(
    tmp_path: Path, broker: MemoryBroker
) -> None:
    # D11: every reward 0, batches of four groups, three rounds
    async with bench(tmp_path, broker, drop_rate=1.0, groups_per_batch=4) as subject:
        subject.cap = 12
        life = subject.start_filter()
        subject.start_rollout()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([life])
        mistake = _mistake_in(life.exception(), tmp_path)  # type: ignore[arg-type]
        assert isinstance(mistake, UserError)
        assert subject.run_state == RunState(phase="failed", step=0, message=str(mistake))
        state = subject.state
    assert "max_dropped_in_a_row = 12" in str(mistake)
    assert "0 kept, dropped: all_wrong" in str(mistake)
    assert state.issued == state.dropped["all_wrong"] + state.num_outstanding
    assert state.dropped["all_wrong"] >= 12


async def test_a_run_without_rollouts_ends_with_the_cause_instead_of_idling(
    tmp_path: Path, broker: MemoryBroker
) -> None:
    async with bench(tmp_path, broker) as subject:
        subject.stall_s = 0.5
        life = subject.start_filter()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([life])
        mistake = _mistake_in(life.exception(), tmp_path)  # type: ignore[arg-type]
        assert subject.run_state == RunState(phase="failed", step=0, message=str(mistake))
        assert subject.state.num_outstanding == 2  # the reserve, and nothing is lost
    assert "nobody takes the 2 of prompts: a rollout is missing" in str(mistake)


async def test_after_a_failed_run_a_new_filter_says_at_once_that_it_is_running(
    tmp_path: Path, broker: MemoryBroker
) -> None:
    async with bench(tmp_path, broker, drop_rate=1.0) as subject:
        subject.cap = 3
        life = subject.start_filter()
        subject.start_rollout()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([life])
        assert life.exception() is not None
        subject._tasks.remove(life)
        subject.cap, subject.drop_rate = 0, 0.0
        subject.start_filter()
        await subject.until(lambda: subject.run_state == RunState(phase="running", step=0))
        subject.start_learner()
        await subject.until(subject.is_done)


async def ask(subject: Bench, number: int, client: QueueClient) -> list[Prompt]:
    """Take prompts as a rollout would."""
    inbox = client.take(PROMPTS, window=number)
    async with asyncio.timeout(LIMIT_S):
        return [codec.decode(Prompt, (await inbox.get()).frames) for _ in range(number)]


async def test_prompts_go_out_against_the_credit_of_rollouts_plus_the_reserve(
    tmp_path: Path, broker: MemoryBroker
) -> None:
    async with bench(tmp_path, broker, max_staleness=8) as subject, broker.client("rollout-0") as client:
        subject.start_filter()
        await subject.until(lambda: len(broker.ids(PROMPTS)) == 2)  # nobody is there yet: the reserve
        await ask(subject, 4, client)
        await subject.until(lambda: len(broker.ids(PROMPTS)) == 6)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(broker.ids(PROMPTS)) == 6  # 4 taken, 2 ready; the bound would allow 27
        assert subject.state.issued == 6


async def test_a_scored_group_that_does_not_decode_is_dropped_and_replaced(
    tmp_path: Path, broker: MemoryBroker
) -> None:
    async with bench(tmp_path, broker) as subject, broker.client("rollout-0") as client:
        subject.start_filter()
        first, second = await ask(subject, 2, client)
        await client.give(Item(SCORED, first.id, [b"\xc1 nonsense"]))
        await client.give(Item(SCORED, second.id, subject.scored(first).frames))  # another group under its name
        await subject.until(lambda: subject.state.dropped == {"malformed": 2})
        await subject.until(lambda: subject.state.issued == 4)  # two in work, one ready, one more in the reserve
        assert broker.ids(SCORED) == []


async def test_a_dead_letter_frees_its_place(tmp_path: Path, broker: MemoryBroker) -> None:
    broker._max_deliveries = 1
    async with bench(tmp_path, broker) as subject:
        subject.start_filter()
        async with broker.client("rollout-0", dies=True) as client:
            first, second = await ask(subject, 2, client)
        broker.advance(LEASE_S + 1)
        await subject.until(lambda: subject.state.dropped == {"dead": 2})
        assert first.id not in subject.state.outstanding
        subject.start_rollout()
        subject.start_learner()
        await subject.until(subject.is_done)
        assert broker.core.stats(PROMPTS, broker.now).dead == [first.id, second.id]


async def test_several_groups_are_decided_in_one_transaction(tmp_path: Path, broker: MemoryBroker) -> None:
    async with bench(tmp_path, broker, groups_per_batch=30, drop_rate=0.0) as subject:
        async with broker.client("rollout-0") as client:
            life = subject.start_filter()
            prompts = await ask(subject, 30, client)
            life.cancel()
            await asyncio.wait([life])
            subject._tasks.clear()
            for prompt in prompts:
                await client.give(subject.scored(prompt))
        before = broker.register(REGISTER)[0]
        subject.start_filter()
        subject.start_learner()
        await subject.until(lambda: len(subject.batches) == 1)
    assert broker.register(REGISTER)[0] - before <= 4  # 30 groups arrive, one batch and one feedback


async def test_a_batch_carries_the_arrays_of_its_groups_unchanged(tmp_path: Path, broker: MemoryBroker) -> None:
    async with bench(tmp_path, broker, groups_per_batch=2, drop_rate=0.0) as subject:
        async with broker.client("rollout-0") as client, broker.client("learner-0") as learner:
            subject.start_filter()
            frames = {}
            for prompt in reversed(await ask(subject, 2, client)):
                item = subject.scored(prompt)
                ids = np.asarray([len(frames) + 5] * 2, dtype="<i4").tobytes()
                frames[prompt.id] = [item.frames[0], item.frames[1], ids, item.frames[3]]
                await client.give(Item(SCORED, prompt.id, frames[prompt.id]))
            async with asyncio.timeout(LIMIT_S):
                batch_item = await learner.take(BATCHES, window=1).get()
    batch: Batch
    batch, arrays = codec.decode_batch(batch_item.frames)
    for scored, mine in zip(batch.groups, arrays, strict=True):
        assert mine.token_ids.tobytes() == frames[scored.group.prompt.id][2]
    assert batch.totals["issued"] == 2
