"""A file of outputs for `dapo verify`, row by row.

{"output", "gold" | "answer", "id"?, "verifier"?, "metadata"?, "tests"?, "data_source"?, "prompt"?}  ->  Answer
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.messages import PYTHON, VERIFIERS, Task

DEFAULT_VERIFIER = "math"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One row of the file."""

    id: Any
    output: str
    task: Task
    question: str


def read(path: Path, verifier: str = "") -> list[Answer]:
    """The rows of a file, judged by `verifier` or by the one that each names; raises `UserError` naming a bad row."""
    if verifier:
        _check(verifier, "--verifier")
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"answers file {path} cannot be read: {error.strerror}") from error
    return [_answer(f"{path}, row {number}", number, line, verifier) for number, line in _numbered(lines)]


def _numbered(lines: list[bytes]) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _answer(where: str, number: int, line: bytes, verifier: str) -> Answer:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: it is not JSON ({error}); mend or remove it") from error
    if not isinstance(row, dict) or not isinstance(row.get("output"), str):
        raise UserError(f"{where}: `output` is missing or not a text; give the model's answer")
    name = verifier or str(row.get("verifier") or DEFAULT_VERIFIER)
    _check(name, where)
    task = Task(
        verifier=name, gold=_text(row.get("gold", row.get("answer"))), tests=_text(row.get("tests")),
        data_source=_text(row.get("data_source")), metadata=_text(row.get("metadata")),
    )  # fmt: skip
    return Answer(id=row.get("id", number), output=row["output"], task=task, question=_question(row))


def _check(name: str, where: str) -> None:
    if name not in VERIFIERS and not name.startswith(PYTHON):
        raise UserError(
            f"{where}: verifier `{name}` is unknown; known are {', '.join(VERIFIERS)}, {PYTHON}package.module:function"
        )


def _text(value: Any) -> str:
    """A text as it is; anything else as JSON, so that 42 is "42"; empty for null."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _question(row: Mapping[str, Any]) -> str:
    """What was asked: text, or the last of the messages."""
    prompt = row.get("prompt", row.get("question"))
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        prompt = prompt[-1].get("content")
    return prompt if isinstance(prompt, str) else ""
