"""A judge that fails in every way, behind the real reward service: what the queues and the counters see of it."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.client import Item
from common.codec import Arrays, decode_scored, encode
from common.history import History
from common.messages import GROUPS, SCORED, ChatMessage, Group, Prompt, Sample, Sampling, Scored, Span, Task
from services.filter.dynamic_sampling import drop_reason
from services.reward import scoring
from services.reward.config import RewardConfig
from services.reward.judges import Judges, open_remote
from services.reward.pool import ERRORS
from services.reward.remote.config import JudgeConfig
from services.reward.scoring import RETRIES
from services.reward.service import RewardService
from services.reward.shaping import Shaping
from tests.fakes import HashJudge
from tests.memory_broker import MemoryBroker
from tests.unit.reward.servers import completion, fake_server

pytest.importorskip("httpx")

SHAPING = Shaping(correct=1.0, wrong=-1.0, max_length=8, buffer=4, factor=1.0, ngram=1)
REPLIES = {
    "crash": (500, "oops"), "nonsense": completion("I like it."), "silence": None,
    "right": completion("Score: 10"), "poor": completion("Score: 0"),
}  # fmt: skip


def reply(_: int, body: Any) -> tuple[int, str] | None:
    """By the answer that is judged."""
    return REPLIES[body["messages"][0]["content"].split()[1]]


def group(name: str, texts: tuple[str, ...]) -> Item:
    """A group of samples of one token."""
    prompt = Prompt(
        id=name, row=0, chat=[ChatMessage(role="user", content="?")], task=Task(verifier="judge", gold="4"),
        min_version=0, sampling=Sampling(n=len(texts), temperature=1.0, max_tokens=8, seed=1),
    )  # fmt: skip
    spans = [Span(version=0, start=0, end=1)]
    samples = [Sample(num_tokens=1, finish="stop", spans=spans, text=text) for text in texts]
    ones = np.ones(len(texts), dtype=np.int32)
    return Item(GROUPS, name, encode(Group(prompt=prompt, samples=samples), Arrays(ones[:1], ones, ones * 0.0)))


async def scored_by_the_service(folder: Path, config: RewardConfig, groups: list[Item]) -> dict[str, Scored]:
    """What comes out of the reward service for these groups, by id."""
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(MemoryBroker(folder))
        rollout, client, taker = [await stack.enter_async_context(broker.client(name)) for name in "abc"]
        remote = await stack.enter_async_context(open_remote(config))
        service = RewardService(
            client=client, judge=Judges(HashJudge(), remote), shaping=SHAPING, history=History(folder, "reward"),
            max_groups=4, retries=2,
        )  # fmt: skip
        running = asyncio.create_task(service.run())
        await rollout.give(*groups)
        inbox = taker.take(SCORED, window=4)
        found = [decode_scored((await inbox.get()).frames)[0] for _ in groups]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return {scored.group.prompt.id: scored for scored in found}


async def test_a_judge_that_fails_is_asked_again_trains_nothing_and_holds_up_no_other_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BACK_OFF_S", 0.001)
    template = tmp_path / "judge.txt"
    template.write_text("Answer: {output}\nEnd with a line `Score: X`, X from 0 to 10.")
    causes = ("status 500", "nonsense", "timeout")
    before = {cause: ERRORS.labels("judge", cause)._value.get() for cause in causes}, RETRIES._value.get()
    async with fake_server(reply) as server:
        judge = JudgeConfig(url=server.url, model="m", template=str(template), timeout_s=0.3)
        scored = await scored_by_the_service(
            tmp_path, RewardConfig(workers=1, judge=judge),
            [group("fails", ("crash", "nonsense", "silence")), group("works", ("right", "poor", "crash"))],
        )  # fmt: skip

    verdicts = {name: [verdict.verdict for verdict in one.verdicts] for name, one in scored.items()}
    assert verdicts == {"fails": ["error"] * 3, "works": ["correct", "wrong", "error"]}
    assert scored["fails"].terms == [{}, {}, {}]  # no term of a reward, not even of the length
    assert scored["works"].terms[2] == {}
    assert drop_reason(scored["fails"].verdicts, min_survivors=2) == "too_few_survivors"
    assert drop_reason(scored["works"].verdicts, min_survivors=2) is None
    # 4 samples fail, each asked 1 + 2 times: crash twice, nonsense once, silence once
    assert RETRIES._value.get() - before[1] == 4 * 2
    grown = {cause: ERRORS.labels("judge", cause)._value.get() - before[0][cause] for cause in causes}
    assert grown == {"status 500": 6, "nonsense": 3, "timeout": 3}
