"""What the rollout service asks of an inference engine, and nothing more.

    prompt token ids, Request  ->  Engine.generate  ->  one Completion per sample

An engine may load another version while requests are in flight; the spans of a completion say which version sampled
which tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from common.errors import DapoError
from common.messages import Span


class EngineError(DapoError):
    """The engine did not produce what was asked: an aborted request, a missing log-probability."""


class LoadRefusedError(DapoError):
    """A published version cannot be taken; the old version goes on under its own number."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt to be answered `n` times."""

    id: str
    prompt_ids: Sequence[int]
    n: int
    temperature: float
    max_tokens: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sample: T token ids, stop token included, with the log-probability of each after temperature."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish: Literal["stop", "length"]
    spans: Sequence[Span]


class Engine(Protocol):
    """Samples under the newest loaded version; both methods may be awaited at the same time."""

    async def generate(self, request: Request) -> list[Completion]:
        """Sample a group; raises `EngineError` if any of its samples is not whole."""

    async def load(self, version: int, tensors: Path) -> None:
        """Switch to a version, given as a safetensors file that was checked, between two decode steps."""
