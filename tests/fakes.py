"""Hand-written stand-ins for heavy parts. Each says what it is not."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from common.messages import ChatMessage, Span, Task, Verdict
from services.learner.attention import segments
from services.learner.model import Policy
from services.rollout.engine import Completion, Request


class PlainEngine:
    """A real policy sampled one sample at a time by plain transformers: exact and repeatable, unlike batched vLLM.

    Not continuous batching: a load waits for the group in work, so a group has one version.
    """

    def __init__(self, policy: Policy, *, delay_s: float = 0.0) -> None:
        self._policy = policy
        self._delay_s = delay_s
        self._version = -1
        self._lock = asyncio.Lock()

    async def load(self, version: int, tensors_file: Path) -> None:
        """Copy the version's tensors into the model."""
        tensors = load_file(tensors_file)
        async with self._lock:
            with torch.no_grad():
                for name, parameter in self._policy.named_parameters().items():
                    parameter.copy_(tensors[name])
            self._version = version

    async def generate(self, request: Request) -> list[Completion]:
        """Sample a group, after a delay that depends on its seed."""
        await asyncio.sleep(self._delay_s * (request.seed % 7))
        async with self._lock:
            return [self._sample(request, place) for place in range(request.n)]

    def _sample(self, request: Request, place: int) -> Completion:
        generator = torch.Generator().manual_seed((request.seed + place) % 2**63)
        ids, logprobs = list(request.prompt_ids), []
        for _ in range(request.max_tokens):
            with torch.no_grad():
                packed = segments([len(ids)], self._policy.device)
                logits = self._policy.model(input_ids=torch.tensor([ids]), segments=packed).logits[0, -1]
            logp = (logits / request.temperature).log_softmax(-1)
            token = int(torch.multinomial(logp.exp(), 1, generator=generator))
            ids.append(token)
            logprobs.append(float(logp[token]))
        spans = [Span(version=self._version, start=0, end=request.max_tokens)]
        return Completion(token_ids=ids[len(request.prompt_ids) :], logprobs=logprobs, finish="length", spans=spans)


class DigitTemplate:
    """A template without a tokenizer: a prompt is its digits, a text its token ids."""

    def prompt_ids(self, chat: Sequence[ChatMessage]) -> list[int]:
        """The digits of the last message."""
        return [int(character) + 3 for character in chat[-1].content]

    def text(self, token_ids: Sequence[int]) -> str:
        """The ids, separated by blanks."""
        return " ".join(map(str, token_ids))


class HashJudge:
    """Verdicts by a hash of the text: about half are correct, the same every time. No mathematics."""

    def verdict(self, output: str) -> Verdict:
        """Correct for an even hash."""
        even = hashlib.sha256(output.encode()).digest()[0] % 2 == 0
        return Verdict(verdict="correct", score=1.0) if even else Verdict(verdict="wrong")

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """As the pool does."""
        return self.verdict(output)
