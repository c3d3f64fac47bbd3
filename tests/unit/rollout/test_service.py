import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgpack
import pytest

from common.client import Item, QueueClient
from common.codec import decode_group, encode
from common.history import History
from common.messages import GROUPS, POLICY, PROMPTS, ChatMessage, Policy, Prompt, Sampling, Task
from common.protocol import Write
from services.rollout import service
from services.rollout.engine import Completion, EngineError, LoadRefusedError, Request, Span
from services.rollout.service import Rollout
from tests.fakes import DigitTemplate
from tests.memory_broker import MemoryBroker


class Here:
    """Versions that are where the policy says."""

    def prepare(self, policy: Policy) -> Path:
        return Path(policy.path)


class ScriptedEngine:
    """Answers with its version as token; a gate holds answers back. No model."""

    def __init__(self) -> None:
        self.version = -1
        self.refused: set[int] = set()
        self.failures = 0
        self.started: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, version: int, tensors: Path) -> None:
        """Take the version unless it is to be refused."""
        if version in self.refused:
            raise LoadRefusedError(f"version {version}: tensor x is missing")
        self.version = version

    async def generate(self, request: Request) -> list[Completion]:
        """Two tokens: one of the version at the start, one of the version at the end."""
        self.started.append(request.id.partition("#")[0])
        if self.failures:
            self.failures -= 1
            raise EngineError("aborted")
        first = self.version
        await self.gate.wait()
        last = self.version
        spans = [Span(version=first, start=0, end=1), Span(version=last, start=1, end=2)]
        spans = [Span(version=first, start=0, end=2)] if first == last else spans
        ids = [first, last]
        return [Completion(token_ids=ids, logprobs=[-1.0, -2.0], finish="stop", spans=spans)] * request.n


def prompt(group: str, *, min_version: int = 0, content: str = "12") -> Item:
    value = Prompt(
        id=group, row=0, chat=[ChatMessage(role="user", content=content)], task=Task(verifier="math", gold="1"),
        sampling=Sampling(n=2, temperature=1.0, max_tokens=2, seed=1), min_version=min_version,
    )  # fmt: skip
    return Item(PROMPTS, group, encode(value))


async def publish(client: QueueClient, version: int) -> None:
    policy = Policy(version=version, digest=f"d{version}", path="/none")
    await client.give(writes=[Write(register=POLICY, value=encode(policy)[0])])


@contextlib.asynccontextmanager
async def running(
    folder: Path, engine: ScriptedEngine, *, group_timeout_s: float = 60.0
) -> AsyncIterator[tuple[MemoryBroker, QueueClient]]:
    """A rollout at work, and a client beside it."""
    history = History(folder / "history", "rollout-0")
    async with (
        MemoryBroker(folder) as broker,
        broker.client("other") as other,
        broker.client("rollout-0") as client,
    ):
        rollout = Rollout(
            client=client, engine=engine, weights=Here(), template=DigitTemplate(), history=history,
            replica="rollout-0", max_groups=4, max_prompt_tokens=4, group_timeout_s=group_timeout_s,
        )  # fmt: skip
        task = asyncio.create_task(rollout.run())
        yield broker, other
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    history.close()


async def settled() -> None:
    """Let everything that can run do so."""
    for _ in range(100):
        await asyncio.sleep(0.001)


async def test_no_prompt_is_taken_before_a_version_is_loaded(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with running(tmp_path, engine) as (broker, other):
        await other.give(prompt("0/000000"))
        await settled()
        assert broker.ids(PROMPTS) == ["0/000000"]
        await publish(other, 0)
        await settled()
        assert broker.ids(PROMPTS) == []
        assert broker.ids(GROUPS) == ["0/000000"]


async def test_a_group_says_which_version_sampled_each_token(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with running(tmp_path, engine) as (_, other):
        await publish(other, 0)
        await other.give(prompt("0/000000"))
        engine.gate.clear()
        await settled()
        await publish(other, 1)  # loaded while the request is in flight
        await settled()
        engine.gate.set()
        item = await other.take(GROUPS, window=1).get()
    group, arrays = decode_group(item.frames)
    assert [(s.version, s.start, s.end) for s in group.samples[0].spans] == [(0, 0, 1), (1, 1, 2)]
    assert arrays.token_ids.tolist() == [0, 1, 0, 1]
    assert arrays.prompt_ids.tolist() == [4, 5]  # the digits 1 and 2
    with next((tmp_path / "history").glob("*")).open("rb") as file:
        events = list(msgpack.Unpacker(file))
    assert [event["version"] for event in events if event["event"] == "loaded"] == [0, 1]
    assert [event["id"] for event in events if event["event"] == "sampled"] == ["0/000000"]


async def test_a_prompt_waits_until_its_version_is_loaded(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with running(tmp_path, engine) as (_, other):
        await publish(other, 0)
        await other.give(prompt("new", min_version=1), prompt("old"))
        await settled()
        assert engine.started == ["old"]
        await publish(other, 1)
        await settled()
        assert engine.started == ["old", "new"]


async def test_a_refused_version_leaves_the_old_one_under_its_number(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine.refused = {1}
    async with running(tmp_path, engine) as (_, other):
        await publish(other, 0)
        await settled()
        await publish(other, 1)
        await other.give(prompt("0/000000"))
        item = await other.take(GROUPS, window=1).get()
        await publish(other, 2)
        await settled()
        assert engine.version == 2
    assert decode_group(item.frames)[0].samples[0].spans[0].version == 0


async def test_a_group_that_the_engine_did_not_finish_is_sampled_again(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine.failures = 1
    async with running(tmp_path, engine) as (broker, other):
        await publish(other, 0)
        await other.give(prompt("0/000000"))
        await settled()
        assert broker.ids(GROUPS) == []
        for _ in range(3):  # its lease is no longer kept alive
            broker.advance(6.0)
            await settled()
        assert engine.started == ["0/000000", "0/000000"]
        assert broker.ids(GROUPS) == ["0/000000"]


async def test_an_overlong_prompt_never_reaches_the_engine_and_is_accounted_for(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with running(tmp_path, engine) as (_, other):
        await publish(other, 0)
        await other.give(prompt("0/000000", content="12345"))
        item = await other.take(GROUPS, window=1).get()
    assert engine.started == []
    assert [sample.num_tokens for sample in decode_group(item.frames)[0].samples] == [0, 0]


@pytest.mark.parametrize("leaves", ["stopped", "killed"])
async def test_what_a_leaving_rollout_held_goes_to_another(tmp_path: Path, leaves: str) -> None:
    async with MemoryBroker(tmp_path) as broker, broker.client("other") as other:
        await other.give(prompt("0/000000"))
        async with broker.client("rollout-0", dies=leaves == "killed") as first:
            await first.take(PROMPTS, window=1).get()
        inbox = other.take(PROMPTS, window=1)
        if leaves == "killed":
            broker.advance(11.0)
        assert (await inbox.get()).id == "0/000000"


async def test_an_engine_that_is_stuck_on_a_group_gives_it_up(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine.gate.clear()
    async with running(tmp_path, engine, group_timeout_s=0.02) as (broker, other):
        await publish(other, 0)
        await other.give(prompt("0/000000"))
        await asyncio.sleep(0.1)
        engine.gate.set()
        for _ in range(3):  # its lease is no longer kept alive
            broker.advance(6.0)
            await settled()
        assert engine.started == ["0/000000", "0/000000"]
        assert broker.ids(GROUPS) == ["0/000000"]


async def test_a_refused_version_is_tried_again_without_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    engine = ScriptedEngine()
    engine.refused = {1}
    async with running(tmp_path, engine) as (_, other):
        await publish(other, 0)
        await settled()
        await publish(other, 1)
        await settled()
        assert engine.version == 0
        engine.refused = set()
        await settled()
        assert engine.version == 1
