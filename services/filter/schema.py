"""One raw row to a prompt and its task, told apart by its columns; the answer's are in answers.py.

    own       {"prompt": text | [{role, content}], "answer" | "gold": ..., "data_source"?, "verifier"?, "tests"?, "id"?}
    verl      {"prompt": [{role, content}], "data_source", "reward_model": {"ground_truth"}, "extra_info"?}
    GSM8K     {"question": text, "answer": "... #### 72"}
    MATH      {"problem": text, "solution": "... \\boxed{72}"}
    TRL       {"prompt": ..., "solution" | "answer" | "ground_truth": ...}
    OpenRLHF  {"input" | "context_messages": ..., "label": ...}
    prime-rl  {"prompt" | "question": ..., "answer" | "info" | "verification_info": ...}
    programs  {"question" | "question_content": ..., tests: programs.py}

A row that cannot be used is a value, `Refusal`, not an exception: the caller reports all of them together. In verl's
schema the data_source decides how an answer is judged, so a row with an unknown one is refused rather than guessed at;
in our own it is a label of the user's choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from common.messages import VERIFIERS, ChatMessage, Task
from services.filter.answers import gold
from services.filter.gym import SOURCE as GYM_SOURCE
from services.filter.judging import UNSAID, Judging, can_be_judged, chosen_verifier, metadata, terms
from services.filter.programs import SOURCES, check_tests, tests_of
from services.filter.reading import Unreadable
from services.filter.values import UnusableError, first, nested, text

DEFAULT_VERIFIER = "math"
CODE = "code"
NO_CATEGORY = "other"
PROMPT_COLUMNS = ("prompt", "question", "problem", "input", "context_messages", "question_content")
ROLES = ("system", "user", "assistant", "tool")
MATH_SOURCES = frozenset({
    "openai/gsm8k", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500", "math",
    "math_dapo", "math_dapo_reasoning", "numina_aops_forum", "numina_synthetic_math", "numina_amc_aime",
    "numina_synthetic_amc", "numina_cn_k12", "numina_olympiads",
})  # fmt: skip
"""The mathematical data sources that verl's reward dispatch knows by name; it also takes all that begin with `aime`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A usable row."""

    number: int
    """Place in its file, from 1."""
    chat: tuple[ChatMessage, ...]
    task: Task
    category: str = ""
    """What the prompt sampler watches and weighs it with."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A row that cannot be used, and why."""

    number: int
    reason: str


def parse(
    number: int, raw: Any, *, judging: Judging = UNSAID, category: str = "data_source"
) -> Row | Refusal:  # fmt: skip
    """A raw row (a JSON object or a Parquet record) as a `Row`; `judging` is what a row is judged by that does not say.

    `category` is the field that holds the row's category; `a.b` is field b of the object in field a.
    """
    try:
        if isinstance(raw, Unreadable):
            raise UnusableError(raw.reason)
        if not isinstance(raw, Mapping):
            raise UnusableError("it is not an object: write one object a line")
        chat = _chat(first(raw, *PROMPT_COLUMNS))
        tests = tests_of(raw)
        verifier = _verifier(raw, judging, default=CODE if tests else DEFAULT_VERIFIER)
        task = Task(
            verifier=verifier,
            gold=gold(raw, structured=verifier == "json_schema"),
            tests=tests,
            data_source=text(raw.get("data_source"), "data_source"),
            metadata=metadata(raw),
            terms=terms(raw, judging),
        )
        if not can_be_judged(task):
            raise UnusableError("the answer is missing or empty: give `answer`, `gold` or `tests`")
        if verifier == CODE:
            check_tests(task)
        _check_fits(chat, task)
        label = text(nested(raw, category), category) or NO_CATEGORY
    except UnusableError as reason:
        return Refusal(number=number, reason=str(reason))
    return Row(number=number, chat=chat, task=task, category=label)


def _chat(prompt: Any) -> tuple[ChatMessage, ...]:
    """The messages of a prompt."""
    if prompt is None:
        raise UnusableError("the prompt is missing or null")
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Sequence) or not prompt or isinstance(prompt, bytes):
        raise UnusableError("the prompt is empty, or neither text nor a list of messages")
    chat = tuple(_message(message) for message in prompt)
    if not any(message.content.strip() for message in chat if message.role == "user"):
        raise UnusableError("the prompt is empty")
    return chat


def _message(message: Any) -> ChatMessage:
    if not isinstance(message, Mapping) or "role" not in message or not isinstance(message.get("content"), str):
        raise UnusableError("a message of the prompt lacks `role`, or its `content` is not text")
    if message["role"] not in ROLES:
        raise UnusableError(f"a message of the prompt has role `{message['role']}`; known are {', '.join(ROLES)}")
    return ChatMessage(role=message["role"], content=message["content"])


def _verifier(raw: Mapping[str, Any], judging: Judging, *, default: str) -> str:
    """Who judges the row: whom it or the configuration names, else whom its data_source needs."""
    name = chosen_verifier(raw, judging)
    if name:
        return name
    source = str(raw.get("data_source") or "")
    if source in SOURCES and isinstance(raw.get("reward_model"), Mapping):
        return CODE
    if isinstance(raw.get("reward_model"), Mapping) and source and not _is_math(source):
        raise UnusableError(
            f"data_source `{source}` is unknown, so nothing says how to judge the answer: name a verifier in "
            f"column `verifier`, in [filter] verifier or verifiers; known are {', '.join(VERIFIERS)}"
        )
    if source.startswith(GYM_SOURCE):
        return "reasoning_gym" if raw.get("metadata") else "exact"
    return default


def _is_math(source: str) -> bool:
    return source in MATH_SOURCES or source.startswith("aime")


def _check_fits(chat: tuple[ChatMessage, ...], task: Task) -> None:
    """Refuse what a rollout could not decode: text that is no Unicode, or more of it than a message holds."""
    try:
        _decoder.decode(_encoder.encode((chat, task)))
    except UnicodeEncodeError:
        raise UnusableError("its text is not valid Unicode (half a surrogate pair)") from None
    except msgspec.ValidationError as error:
        raise UnusableError(f"it does not fit a message: {error}") from None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[tuple[ChatMessage, ...], Task])
