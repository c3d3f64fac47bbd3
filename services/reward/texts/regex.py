"""The verifier `regex`: the gold answer is a pattern that the text must hold.

    {"answer": "^<think>.*</think>\\\\s*<answer>.*</answer>$", "metadata": {"on": "output"}}

A Python pattern, searched for with DOTALL; anchor it to match all. `on` is what is searched: the whole `output` with
its thinking (the default, for rules of form), or the `answer` (texts/response.py). A search that does not end in time
is wrong, as with every verifier here: a pattern that can blow up should not be written.
"""

import re

from common.messages import Task, Verdict
from services.reward.texts.response import response, settings
from services.reward.verifiers import BadGoldError, correct, wrong


def verify_regex(output: str, task: Task) -> Verdict:
    """Whether the pattern is found."""
    pattern = _compiled(task.gold)
    place = settings(task).get("on", "output")
    if place not in ("output", "answer"):
        raise BadGoldError("`on` of the metadata is neither `output` nor `answer`")
    text = output if place == "output" else response(output)
    if text is None:
        return wrong("no answer")
    return correct(f"found in {place}") if pattern.search(text) else wrong(f"not found in {place}")


def _compiled(gold: str) -> re.Pattern[str]:
    if not gold:
        raise BadGoldError("there is no pattern")
    try:
        return re.compile(gold, re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadGoldError(f"the pattern does not compile ({error})") from error
