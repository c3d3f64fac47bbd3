"""An engine that plays a part instead of running a model. FOR TESTS AND SIMULATION ONLY: its policy never learns.

    prompt "Say 47"  ->  "so so so \\boxed{47}", or \\boxed{48} where the script wants it wrong

It stands in for vLLM in a real rollout process (`[rollout] engine = "scripted"`): it loads every version,
takes time, is overtaken by new versions in the middle of a sample, and says so in its spans. Tokens and
log-probabilities depend on the request's seed alone, so a group that is sampled twice is the same group. On request it
lies, in the ways of engines: [rollout.scripted] lies. It imports neither torch nor vllm.
"""

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.messages import ChatMessage, Span
from services.rollout.config import ScriptedConfig
from services.rollout.engine import Completion, EngineError, Request

CHUNKS = 4
"""Parts in which a sample is written; a version that is loaded in between writes the rest."""


class ScriptedTemplate:
    """A prompt is its last message, without chat template; the tokenizer is the model's, by `tokenizers` alone."""

    def __init__(self, model: str) -> None:
        """Raises `UserError` if the folder has no tokenizer.json."""
        from tokenizers import Tokenizer

        path = Path(model) / "tokenizer.json"
        if not path.exists():
            raise UserError(f"[run] model {model} has no tokenizer.json, which the scripted engine needs")
        self._tokenizer: Any = Tokenizer.from_file(str(path))
        self.stop_token_ids: list[int] = []

    def prompt_ids(self, chat: Sequence[ChatMessage]) -> list[int]:
        """Token ids of the last message."""
        return self.tokens(chat[-1].content)

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of token ids."""
        return str(self._tokenizer.decode(list(token_ids)))


class ScriptedEngine:
    """See the module."""

    def __init__(self, config: ScriptedConfig, template: ScriptedTemplate) -> None:
        self._config = config
        self._template = template
        self._version = -1

    async def load(self, version: int, folder: Path) -> None:
        """Go on as that version; its tensors were checked when they were brought here."""
        self._version = version

    async def generate(self, request: Request) -> list[Completion]:
        """Play a group, or lie about it."""
        rng = np.random.default_rng(request.seed)
        said = int((re.findall(r"\d+", self._template.text(request.prompt_ids)) or ["0"])[-1])
        answers = [self._answer(rng, said, request.max_tokens) for _ in range(request.n)]
        versions = [self._version]
        for _ in range(CHUNKS if self._config.seconds else 0):
            # A long tail, as lengths have: most groups take less than the mean, some several times as much.
            await asyncio.sleep(self._config.seconds / CHUNKS * min(float(rng.exponential()), 5.0))
            versions.append(self._version)
        return self._lie([_completion(rng, tokens, versions) for tokens in answers])

    def _answer(self, rng: np.random.Generator, said: int, max_tokens: int) -> list[int]:
        number = said if rng.random() < self._config.right else said + 1
        words = "so " * int(rng.integers(0, self._config.max_words + 1))
        return self._template.tokens(f"{words}\\boxed{{{number}}}")[-max_tokens:]

    def _lie(self, completions: list[Completion]) -> list[Completion]:
        """The truth, or one of the lies. Not by the request's seed: asked again, it may say the truth."""
        dice = np.random.default_rng()
        if not self._config.lies or dice.random() >= self._config.lie_share:
            return completions
        first, kind = completions[0], str(dice.choice(self._config.lies))
        if kind == "aborted":
            raise EngineError("the request was aborted")
        lie = {
            "version": replace(first, spans=[replace_version(span, self._version + 3) for span in first.spans]),
            "old_version": replace(first, spans=[replace_version(span, 0) for span in first.spans]),
            "nan": replace(first, logprobs=[math.nan, *first.logprobs[1:]]),
            "empty": replace(first, token_ids=[], logprobs=[], spans=[]),
            "short": replace(first, logprobs=first.logprobs[:-1]),
        }[kind]
        return [lie, *completions[1:]]


def replace_version(span: Span, version: int) -> Span:
    """The span under another version."""
    return Span(version=version, start=span.start, end=span.end)


def _completion(rng: np.random.Generator, tokens: list[int], versions: Sequence[int]) -> Completion:
    """Tokens with made-up log-probabilities, written in equal parts by the versions."""
    ends = [len(tokens) * (part + 1) // len(versions) for part in range(len(versions))]
    spans: list[Span] = []
    for version, start, end in zip(versions, [0, *ends], ends, strict=False):
        if spans and spans[-1].version == version:
            spans[-1] = Span(version=version, start=spans[-1].start, end=end)
        elif end > start:
            spans.append(Span(version=version, start=start, end=end))
    logprobs = (-rng.uniform(0.05, 3.0, len(tokens))).tolist()
    return Completion(token_ids=tokens, logprobs=logprobs, finish="stop", spans=spans)
