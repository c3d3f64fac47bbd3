"""Prompts to groups, for ever, while new policy versions are loaded under the requests in flight.

    policy register -> follow_policy -> weights.prepare -> engine.load
    prompts         -> answer        -> engine.generate -> groups

A prompt issued under version s starts only when s or a newer version is loaded; the samples say themselves which
versions wrote them.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from prometheus_client import Counter, Gauge, Histogram

from common.client import Delivery, Item, QueueClient, Watched
from common.codec import Arrays, decode, encode
from common.each import for_each
from common.errors import RefusedError, WireError
from common.history import History
from common.messages import GROUPS, POLICY, PROMPTS, ChatMessage, Group, Policy, Prompt, Sample, Span
from common.protocol import Register
from common.stages import Stage
from services.rollout.engine import Completion, Engine, EngineError, LoadRefusedError, Request
from services.rollout.rolling import no_turn
from services.rollout.whole import check_whole

log = logging.getLogger(__name__)

TOKENS = Counter("dapo_rollout_tokens_total", "Response tokens sampled.")
SAMPLES = Counter("dapo_rollout_samples_total", "Responses sampled, by how they ended.", ["finish"])
VERSION = Gauge("dapo_policy_version", "Policy version in use.", ["role"])
FAILED = Counter("dapo_rollout_failures_total", "Groups or versions that failed.", ["kind"])


RETRY_S = 5.0
"""Until a version that was refused is tried again, unless a newer one comes first."""
PREPARE = Histogram(
    "dapo_rollout_prepare_seconds", "Seconds to bring a version to this machine and check it; sampling goes on.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)  # fmt: skip


class Prompter(Protocol):
    """Chat to prompt tokens, response tokens to text."""

    def prompt_ids(self, chat: Sequence[ChatMessage]) -> list[int]:
        """Token ids of the prompt."""

    def text(self, token_ids: Sequence[int]) -> str:
        """The response as the verifier reads it."""


class Weights(Protocol):
    """Brings versions to this machine."""

    def prepare(self, policy: Policy) -> Path:
        """A safetensors file of the version, valid until the next call; raises `LoadRefusedError`. Blocks."""


class Rollout:
    """One replica: an engine, a tokenizer and a place in the queues."""

    def __init__(
        self, *, client: QueueClient, engine: Engine, weights: Weights, template: Prompter, history: History,
        replica: str, max_groups: int, max_prompt_tokens: int, group_timeout_s: float = 3600.0,
        turn: Callable[[QueueClient], contextlib.AbstractAsyncContextManager[None]] = no_turn,
    ) -> None:  # fmt: skip
        self._client = client
        self._engine = engine
        self._weights = weights
        self._template = template
        self._history = history
        self._replica = replica
        self._max_groups = max_groups
        self._max_prompt_tokens = max_prompt_tokens
        self._group_timeout_s = group_timeout_s
        self._turn = turn
        self._stage = Stage("rollout")
        self._loaded, self._given = -1, -1
        """The version that the engine has, and the one that it was given last: while it loads, both may write."""
        self._news = asyncio.Condition()

    async def run(self) -> None:
        """Both loops, for ever. A version is loaded before the first prompt is asked for."""
        policy = self._client.watch(POLICY)
        await self._load_next(policy)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_policy(policy))
            prompts = self._client.take(PROMPTS, window=self._max_groups)
            tasks.create_task(for_each(prompts, self._answer, stage=self._stage))

    async def _follow_policy(self, policy: Watched) -> None:
        """Policy register -> engine, for ever. Waits for the learner to publish, or to try a refused version again."""
        while True:
            is_behind = policy.latest is not None and self._is_new(policy.latest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if is_behind else None):
                    await policy.changed()
            await self._load(policy.latest)

    async def _load_next(self, policy: Watched) -> None:
        """Wait for news of the register and load the version it names."""
        await self._load(await policy.changed())

    def _is_new(self, register: Register) -> bool:
        return register.version > 0 and decode(Policy, [register.value]).version > self._loaded

    async def _load(self, register: Register | None) -> None:
        """Load the version that the register names, if it is new."""
        if register is None or not self._is_new(register):
            return
        newest = decode(Policy, [register.value])
        before, self._given = self._given, newest.version
        try:
            with PREPARE.time():
                tensors = await asyncio.to_thread(self._weights.prepare, newest)
            async with self._turn(self._client):
                await self._engine.load(newest.version, tensors)
        except LoadRefusedError as error:
            FAILED.labels("load").inc()
            self._given = before
            log.error("version refused", extra={"version": newest.version, "cause": str(error)})
            return
        async with self._news:
            self._loaded = newest.version
            self._news.notify_all()
        VERSION.labels("rollout").set(newest.version)
        self._history.append("loaded", version=newest.version, digest=newest.digest)

    async def _answer(self, item: Delivery) -> None:
        """One prompt to one group; what fails is left to the lease and tried again, here or elsewhere."""
        try:
            prompt = decode(Prompt, item.frames)
            group, arrays = await self._sample(prompt)
        except (EngineError, WireError) as error:
            FAILED.labels("group").inc()
            log.error("group failed", extra={"group": item.id, "cause": str(error)})
            self._client.abandon(item.lease)
            return
        spans = [[[span.version, span.start, span.end] for span in sample.spans] for sample in group.samples]
        self._history.append("sampled", id=prompt.id, spans=spans, seconds=group.seconds)
        try:
            await self._client.give(
                Item(GROUPS, prompt.id, encode(group, arrays)), settles=[item.lease], reason="sampled"
            )
        except RefusedError as error:
            FAILED.labels("refused").inc()
            log.warning("group refused", extra={"group": item.id, "cause": str(error)})

    async def _sample(self, prompt: Prompt) -> tuple[Group, Arrays]:
        async with self._news:
            await self._news.wait_for(lambda: self._loaded >= prompt.min_version)
        prompt_ids = self._template.prompt_ids(prompt.chat)
        start = time.monotonic()
        completions = await self._complete(prompt, prompt_ids)
        group = Group(
            prompt=prompt,
            samples=[self._as_sample(completion) for completion in completions],
            replica=self._replica,
            seconds=time.monotonic() - start,
        )
        for completion in completions:
            TOKENS.inc(len(completion.token_ids))
            SAMPLES.labels(completion.finish).inc()
        return group, as_arrays(prompt_ids, completions)

    async def _complete(self, prompt: Prompt, prompt_ids: Sequence[int]) -> list[Completion]:
        """Ask the engine; an overlong prompt never reaches it and gets empty answers, so that it is accounted for."""
        sampling = prompt.sampling
        if len(prompt_ids) > self._max_prompt_tokens:
            FAILED.labels("prompt_too_long").inc()
            log.warning("prompt too long", extra={"group": prompt.id, "tokens": len(prompt_ids)})
            span = Span(version=self._loaded, start=0, end=0)
            return [Completion(token_ids=[], logprobs=[], finish="length", spans=[span])] * sampling.n
        request = Request(
            id=f"{prompt.id}#{time.monotonic_ns()}",
            prompt_ids=prompt_ids,
            n=sampling.n,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            seed=sampling.seed,
        )
        oldest = self._loaded
        try:
            async with asyncio.timeout(self._group_timeout_s):
                completions = await self._engine.generate(request)
        except TimeoutError:
            raise EngineError(f"group {prompt.id}: no answer after {self._group_timeout_s:g} s") from None
        check_whole(prompt.id, completions, n=sampling.n, oldest=oldest, newest=self._given)
        return completions

    def _as_sample(self, completion: Completion) -> Sample:
        return Sample(
            num_tokens=len(completion.token_ids),
            finish=completion.finish,
            spans=list(completion.spans),
            text=self._template.text(completion.token_ids),
        )


def as_arrays(prompt_ids: Sequence[int], completions: Sequence[Completion]) -> Arrays:
    """The arrays of a group, its samples one after the other."""
    return Arrays(
        np.asarray(prompt_ids, dtype=np.int32),
        np.asarray([token for c in completions for token in c.token_ids], dtype=np.int32),
        np.asarray([logprob for c in completions for logprob in c.logprobs], dtype=np.float32),
    )
