"""What the verifiers of texts look at, and what a row says beside its gold answer.

response   the text after the thinking, up to the end of the model's turn; of it, what stands in the last
           <answer>...</answer> if there is one. None: the thinking or the tag never ends, so there is no answer.
settings   the row's `metadata`, an object
"""

import json
import re
from typing import Any

from common.messages import Task
from services.reward.maths.extraction import after_thinking, first_turn
from services.reward.verifiers import BadGoldError

OPEN, CLOSE = "<answer>", "</answer>"
_DECORATION = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*\{([^{}]*)\}|[*_`$]")


def response(output: str) -> str | None:
    """The answer of a model's text, spaces around it left out."""
    text = after_thinking(output)
    if text is None:
        return None
    text = first_turn(text)
    start, end = text.rfind(OPEN), text.rfind(CLOSE)
    if start < 0:
        return text.strip()
    return text[start + len(OPEN) : end].strip() if end > start else None


def undecorated(text: str) -> str:
    """Without Markdown's emphasis and LaTeX's text commands."""
    return _DECORATION.sub(lambda match: match[1] or "", text).strip()


def settings(task: Task) -> dict[str, Any]:
    """The metadata of a task; raises `BadGoldError` if it is no object."""
    if not task.metadata:
        return {}
    try:
        found = json.loads(task.metadata)
    except (ValueError, RecursionError) as error:
        raise BadGoldError("the metadata is not JSON") from error
    if not isinstance(found, dict):
        raise BadGoldError("the metadata is not an object")
    return found


def passing(task: Task, default: float) -> float:
    """The score from which an answer counts as correct: `passing` of the metadata."""
    value = settings(task).get("passing", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadGoldError("`passing` of the metadata is not a number above 0, at most 1")
    return float(value)
