"""The verifier `reasoning_gym`: scored by the library that made the row.

    {"answer": "4", "data_source": "reasoning_gym/leg_counting", "metadata": {...the entry's...}}

The answer is what stands in the last <answer>...</answer>, as the library's own prompts ask, else the final answer as
found for `math`. Its score is the library's; correct is a score of 1 unless the metadata has `passing`. Rows of
`gym:NAME` (filter) have what is needed.

A scorer that raises on the answer, but not on the gold answer, was given something that is no answer: wrong. What is
wrong in a scorer itself is not mended here (`game_of_life_halting` takes everything but "True" for "False").
"""

import functools
from collections.abc import Callable
from typing import Any

import reasoning_gym

from common.messages import Task, Verdict
from services.reward.maths.extraction import final_answer
from services.reward.texts.response import CLOSE, passing, response, settings
from services.reward.verifiers import BadGoldError, error, graded, wrong

SOURCE = "reasoning_gym/"
NAME_KEY = "source_dataset"

Scorer = Callable[..., float]


def verify_gym(output: str, task: Task) -> Verdict:
    """The library's score of the answer."""
    metadata, enough = settings(task), passing(task, 1.0)
    scorer = _scorer(task.data_source.removeprefix(SOURCE) or str(metadata.get(NAME_KEY, "")))
    text = _answer(output)
    if not text:
        return wrong("no answer")
    score = _score(scorer, text, task.gold, metadata)
    if score is None:
        answerable = task.gold and _score(scorer, task.gold, task.gold, metadata) is not None
        return (
            wrong("the scorer cannot read it") if answerable else error("exception: the scorer of the data set fails")
        )
    return graded(min(1.0, max(0.0, score)), passing=enough)


@functools.cache
def _scorer(name: str) -> Scorer:
    try:
        scorer: Scorer = reasoning_gym.get_score_answer_fn(name)
    except Exception as failure:
        raise BadGoldError(f"`{name}` is no data set of reasoning-gym") from failure
    return scorer


def _answer(output: str) -> str:
    text = response(output)
    if text is None:
        return ""
    if CLOSE in output:
        return text
    found = final_answer(output)
    return found.text if found else text.rpartition("\n")[2]


def _score(scorer: Scorer, answer: str, gold: str, metadata: dict[str, Any]) -> float | None:
    """The better score with metadata as JSON has them and with tuples, which JSON cannot keep; None: it raised."""
    scores = []
    for kept in (metadata, _with_tuples(metadata)):
        try:
            scores.append(float(scorer(answer=answer, entry={"question": "", "answer": gold, "metadata": kept})))
        except Exception:  # noqa: S112  (a library's scorers raise anything)
            continue
        if scores[-1] >= 1:
            break
    return max(scores, default=None)


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
