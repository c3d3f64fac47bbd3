"""The texts that an answer is compared with: the gold answer and the `references` of the metadata."""

from common.messages import Task
from services.reward.texts.response import settings
from services.reward.verifiers import BadGoldError


def references(task: Task) -> list[str]:
    """All of them that are not empty; raises `BadGoldError` if there is none."""
    more = settings(task).get("references", [])
    if not isinstance(more, list) or not all(isinstance(text, str) for text in more):
        raise BadGoldError("`references` of the metadata is not a list of texts")
    texts = [text for text in [task.gold, *more] if text.strip()]
    if not texts:
        raise BadGoldError("there is no reference")
    return texts
