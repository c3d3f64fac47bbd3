"""Groups to scored groups, for ever.

    groups -> decode -> judge every sample (scoring.py) -> terms (shaping.py) -> scored

Waits for rollouts; unblocked by a group, or by room in the pool. The frames of a group pass through unchanged. A group
that does not decode is left unsettled: its lease lapses and, after the broker's limit, it becomes a dead letter that is
shown and counted.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence

from prometheus_client import Counter, Histogram

from common.client import Delivery, Item, QueueClient
from common.codec import Arrays, decode_group, encode
from common.each import for_each
from common.errors import RefusedError, WireError
from common.history import History
from common.messages import GROUPS, SCORED, Group, Scored, Task, Verdict
from common.stages import Stage
from services.reward.f1 import MACRO_F1, MacroF1
from services.reward.scoring import Judge, judged
from services.reward.shaping import Shaping

log = logging.getLogger(__name__)

GROUPS_SCORED = Counter("dapo_reward_groups_total", "Groups scored.")
PASS_RATE = Histogram(
    "dapo_reward_pass_rate_ratio",
    "Share of right answers in a group of several that were judged; 0 and 1 teach nothing.",
    buckets=(0, 0.25, 0.5, 0.75, 0.999, 1),
)
MALFORMED = Counter("dapo_reward_malformed_total", "Groups that do not decode.")


class RewardService:
    """Joins a pool of verifiers to the queues."""

    def __init__(
        self, *, client: QueueClient, judge: Judge, shaping: Shaping, history: History, max_groups: int, retries: int
    ) -> None:
        self._client = client
        self._judge = judge
        self._shaping = shaping
        self._history = history
        self._max_groups = max_groups
        self._retries = retries
        self._f1 = MacroF1()
        self._stage = Stage("reward")

    async def run(self) -> None:
        """Groups -> scored, for ever; each group is a task of its own."""
        inbox = self._client.take(GROUPS, window=self._max_groups)
        await for_each(inbox, self._score, stage=self._stage)

    async def _score(self, item: Delivery) -> None:
        """One group, from its frames to its hand-over."""
        try:
            group, arrays = decode_group(item.frames)
        except WireError as error:
            MALFORMED.inc()
            log.error("group does not decode", extra={"group": item.id, "cause": str(error)})
            self._client.abandon(item.lease)
            return
        start = time.monotonic()
        scored = await self._judged(group, arrays)
        counts = {kind: sum(v.verdict == kind for v in scored.verdicts) for kind in ("correct", "wrong", "error")}
        seconds = time.monotonic() - start
        self._history.append("scored", id=group.prompt.id, seconds=seconds, **counts)
        try:
            frames = [encode(scored)[0], *item.frames[1:]]
            await self._client.give(Item(SCORED, group.prompt.id, frames), settles=[item.lease], reason="scored")
        except RefusedError as error:
            log.warning("scored group refused", extra={"group": item.id, "cause": str(error)})
            return
        GROUPS_SCORED.inc()

    async def _judged(self, group: Group, arrays: Arrays) -> Scored:
        task, question = group.prompt.task, group.prompt.chat[-1].content
        verdicts = await asyncio.gather(
            *(judged(self._judge, sample.text, task, question, retries=self._retries) for sample in group.samples)
        )
        self._count(task, verdicts)
        ends = list(itertools.accumulate(sample.num_tokens for sample in group.samples))
        terms = [
            self._shaping.terms(verdict, sample, task.terms, arrays.token_ids[end - sample.num_tokens : end])
            for verdict, sample, end in zip(verdicts, group.samples, ends, strict=True)
        ]
        return Scored(group=group, verdicts=list(verdicts), terms=terms)

    def _count(self, task: Task, verdicts: Sequence[Verdict]) -> None:
        """Show how many are right, and the macro F1 if these are classifications."""
        judged = [verdict.verdict == "correct" for verdict in verdicts if verdict.verdict != "error"]
        if len(judged) > 1:
            PASS_RATE.observe(sum(judged) / len(judged))
        if any([self._f1.add(task, verdict) for verdict in verdicts]):
            MACRO_F1.set(self._f1.value or 0.0)
