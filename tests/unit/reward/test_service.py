import asyncio
import contextlib
from pathlib import Path

import numpy as np

from common.client import Item
from common.codec import Arrays, decode_scored, encode
from common.history import History
from common.messages import GROUPS, SCORED, ChatMessage, Group, Prompt, Sample, Sampling, Span, Task, Term, Verdict
from services.reward.service import RewardService
from services.reward.shaping import Shaping
from tests.memory_broker import MemoryBroker

TASK = Task(verifier="math", gold="7", terms=[Term(name="repetition"), Term(name="form", weight=0.5, verifier="regex")])
SHAPING = Shaping(correct=1.0, wrong=-1.0, max_length=8, buffer=4, factor=1.0, ngram=1)


class Literal:
    """The text says the verdict; every form is right. Remembers the questions."""

    def __init__(self) -> None:
        self.questions: set[str] = set()

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """As a pool does."""
        self.questions.add(question)
        if task.verifier == "regex":
            return Verdict(verdict="correct", score=1.0)
        return Verdict(verdict=output, score=float(output == "correct"))  # type: ignore[arg-type]


def group(task: Task) -> Item:
    """Three samples of 2, 3 and 1 tokens."""
    samples = [
        Sample(num_tokens=n, finish="stop", spans=[Span(version=0, start=0, end=n)], text=text)
        for n, text in ((2, "correct"), (3, "wrong"), (1, "error"))
    ]
    prompt = Prompt(
        id="0/1", row=0, chat=[ChatMessage(role="user", content="6 + 1?")], task=task, min_version=0,
        sampling=Sampling(n=3, temperature=1.0, max_tokens=8, seed=1),
    )  # fmt: skip
    arrays = Arrays(
        np.array([1], dtype=np.int32), np.array([5, 5, 1, 2, 3, 4], dtype=np.int32), np.zeros(6, dtype=np.float32)
    )
    return Item(GROUPS, "0/1", encode(Group(prompt=prompt, samples=samples), arrays))


async def test_a_group_comes_out_with_verdicts_scores_and_weighted_terms_in_the_order_of_its_samples(
    tmp_path: Path,
) -> None:
    judge = Literal()
    async with MemoryBroker(tmp_path) as broker, broker.client("rollout") as rollout, broker.client("reward") as client:
        service = RewardService(
            client=client, judge=judge, shaping=SHAPING, history=History(tmp_path, "reward"), max_groups=2, retries=0
        )
        task = asyncio.create_task(service.run())
        await rollout.give(group(TASK))
        async with broker.client("filter") as filter_:
            item = await filter_.take(SCORED, window=1).get()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    scored, arrays = decode_scored(item.frames)
    assert [v.verdict for v in scored.verdicts] == ["correct", "wrong", "error"]
    assert [v.scores for v in scored.verdicts] == [{"form": 1.0}, {"form": 1.0}, {"form": 1.0}]
    assert scored.terms == [
        {"task": 1.0, "overlong": 0.0, "repetition": -0.5, "form": 0.5},  # tokens 5 5
        {"task": -1.0, "overlong": 0.0, "repetition": 0.0, "form": 0.5},  # tokens 1 2 3
        {},
    ]
    assert arrays.token_ids.tolist() == [5, 5, 1, 2, 3, 4]
    assert judge.questions == {"6 + 1?"}
