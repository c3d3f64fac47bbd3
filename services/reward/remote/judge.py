"""The verifier `judge`: a language model behind an OpenAI-compatible API gives a score.

    template + question, gold, output  ->  POST URL/chat/completions  ->  a line "Score: 7" of the reply  ->  0.7

The score is read from lines of the reply, after its thinking, that hold nothing but `Score: X`, `Score: X/10` or
{"score": X}. No such line, different ones, or a score out of bounds: the reply is nonsense, an error, asked again and
never a reward. Score = (X - lowest) / (highest - lowest); correct from 0.5 on unless the metadata has `passing`.

Not covered: an answer that talks the judge into a good score. Placeholders are replaced once, so an answer cannot add
to the template, but the judge does read it.
"""

import math
import re
from typing import Any

from common.messages import Task, Verdict
from services.reward.maths.extraction import after_thinking
from services.reward.remote.config import JudgeConfig
from services.reward.remote.endpoint import Endpoint, Failed
from services.reward.texts.response import passing
from services.reward.verifiers import error, graded

PASSING = 0.5
PATH = "/chat/completions"
NONSENSE = "nonsense"
_PLACE = re.compile(r"\{(question|gold|output)\}")
_SCORE = re.compile(
    r"""^[\s*_`{"']{0,20}(?:final\ )?score[\s*_`"']{0,20}[:=][\s*_`"']{0,20}
        ([-+]?\d{1,9}(?:\.\d{1,9})?)(?:\s?/\s?(\d{1,9}))?[\s*_`}"'.]{0,20}$""",
    re.I | re.M | re.X,
)


class LlmJudge:
    """Asks one model."""

    def __init__(self, endpoint: Endpoint, config: JudgeConfig, template: str) -> None:
        self._endpoint = endpoint
        self._config = config
        self._template = template

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The verdict of the model. Waits for its reply."""
        enough = passing(task, PASSING)
        prompt = filled(self._template, question=question, gold=task.gold, output=output)
        reply = await self._endpoint.post(
            {
                "model": self._config.model,
                "messages": [{"role": "user", "content": prompt}],
                "temperature": self._config.temperature,
                "max_tokens": self._config.max_tokens,
            }
        )
        if isinstance(reply, Failed):
            return error(reply.cause)
        score = score_in(content_of(reply), lowest=self._config.lowest, highest=self._config.highest)
        return error(f"{NONSENSE}: no score in the reply") if score is None else graded(score, passing=enough)


def filled(template: str, **values: str) -> str:
    """The template with its placeholders replaced, once: what a value holds is left as it is."""
    return _PLACE.sub(lambda match: values[match[1]], template)


def content_of(reply: Any) -> str:
    """The text of a chat completion; empty if it has none."""
    try:
        content = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def score_in(text: str, *, lowest: float, highest: float) -> float | None:
    """The score of a reply, from 0 to 1; None if it gives none, or several, or one out of bounds."""
    found = {(float(value), float(of or highest)) for value, of in _SCORE.findall(after_thinking(text) or "")}
    if len(found) != 1:
        return None
    value, of = found.pop()
    if not math.isclose(of, highest) or not lowest <= value <= highest:
        return None
    return (value - lowest) / (highest - lowest)
