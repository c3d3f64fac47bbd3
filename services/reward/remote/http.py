"""The verifier `http`: a server of the user's is sent the output and answers with its score.

    POST URL  {"output", "gold", "question", "data_source", "metadata": {...}}
    reply     {"score": 0.7}  or  {"verdict": "correct" | "wrong" | "error", "score"?: 0.7}       `reason` may be added

A score is a number from 0 to 1, and correct from 0.5 on unless the metadata has `passing`. Everything else is nonsense:
an error, asked again and never a reward.
"""

from typing import Any

from common.messages import Task, Verdict
from services.reward.remote.endpoint import Endpoint, Failed
from services.reward.remote.judge import NONSENSE, PASSING
from services.reward.texts.response import passing, settings
from services.reward.verifiers import correct, error, graded, wrong

MARKS = {"correct": 1.0, "wrong": 0.0}


class HttpReward:
    """Asks one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The verdict of the server. Waits for its reply."""
        enough = passing(task, PASSING)
        reply = await self._endpoint.post({
            "output": output, "gold": task.gold, "question": question, "data_source": task.data_source,
            "metadata": settings(task),
        })  # fmt: skip
        return error(reply.cause) if isinstance(reply, Failed) else verdict_in(reply, enough)


def verdict_in(reply: Any, enough: float) -> Verdict:
    """What a reply says."""
    if not isinstance(reply, dict):
        return error(f"{NONSENSE}: the reply is no object")
    verdict, score, reason = reply.get("verdict"), reply.get("score"), str(reply.get("reason", ""))[:300]
    if verdict == "error":
        return error(f"the server says: {reason}")
    if score is None and verdict in tuple(MARKS):
        score = MARKS[verdict]
    if score is None or not _is_score(score) or verdict not in (None, *MARKS):
        return error(f"{NONSENSE}: neither a score from 0 to 1 nor a verdict")
    if verdict is None:
        return graded(score, passing=enough, reason=reason)
    return (correct if verdict == "correct" else wrong)(reason, score)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
