"""One raw row to a prompt and its task; three schemas, told apart by their columns.

    own     {"prompt": text | [{role, content}], "answer" | "gold": ..., "data_source"?, "verifier"?, "tests"?}
    verl    {"prompt": [{role, content}], "data_source", "reward_model": {"ground_truth"}, ...}
    GSM8K   {"question": text, "answer": "... #### 72"}

A row that cannot be used is a value, `Refusal`, not an exception: the caller reports all of them together.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.messages import ChatMessage, Task


@dataclass(frozen=True, kw_only=True)
class Row:
    """A usable row."""

    number: int
    """Place in its file, from 1."""
    chat: tuple[ChatMessage, ...]
    task: Task


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A row that cannot be used, and why."""

    number: int
    reason: str


def parse(number: int, raw: Any, *, verifiers: Sequence[str], verifier: str) -> Row | Refusal:
    """A raw row (a JSON object or a Parquet record) as a `Row`; `verifier` judges rows that name none."""
    if not isinstance(raw, Mapping):
        return Refusal(number=number, reason="it is not an object")
    chat = _chat(raw.get("prompt", raw.get("question")))
    if isinstance(chat, str):
        return Refusal(number=number, reason=chat)
    name = str(raw.get("verifier") or verifier)
    if name not in verifiers:
        return Refusal(number=number, reason=f"verifier `{name}` is unknown; known are {', '.join(verifiers)}")
    gold, tests = _gold(raw), _tests(raw.get("tests"))
    if not gold and not tests:
        return Refusal(number=number, reason="the answer is missing or empty: give `answer`, `gold` or `tests`")
    task = Task(verifier=name, gold=gold, tests=tests, data_source=str(raw.get("data_source") or ""))
    return Row(number=number, chat=chat, task=task)


def _chat(prompt: Any) -> tuple[ChatMessage, ...] | str:
    """The messages of a prompt, or why there are none."""
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if prompt is None:
        return "the prompt is missing or null"
    if not isinstance(prompt, Sequence) or not prompt:
        return "the prompt is empty or not a list of messages"
    messages = []
    for message in prompt:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str) or "role" not in message:
            return "a message of the prompt lacks `role` or `content`"
        messages.append(ChatMessage(role=str(message["role"]), content=message["content"]))
    if not any(message.content.strip() for message in messages if message.role == "user"):
        return "the prompt is empty"
    return tuple(messages)


def _gold(raw: Mapping[str, Any]) -> str:
    """The answer of a row as text; empty if there is none."""
    reward_model = raw.get("reward_model")
    if isinstance(reward_model, Mapping):
        return _text(reward_model.get("ground_truth"))
    gold = _text(raw.get("answer", raw.get("gold")))
    if "question" in raw and "prompt" not in raw and "####" in gold:
        return gold.rpartition("####")[2].strip()
    return gold


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _tests(value: Any) -> str:
    if not value:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
