"""The verifier `exact`: the final answer is the gold, sign by sign.

The final answer is found as for `math` (maths/extraction.py); spaces at the ends and runs of spaces within do not
count, the case of letters does.
"""

import unicodedata

from common.messages import Task, Verdict
from services.reward.maths.extraction import final_answer
from services.reward.verifiers import BAD_GOLD, correct, error, wrong


def verify_exact(output: str, task: Task) -> Verdict:
    """Compare the final answer with the gold as text."""
    gold = _spaced(task.gold)
    if not gold:
        return error(BAD_GOLD)
    found = final_answer(output)
    if found is None:
        return wrong("no answer")
    return correct(f"same as {found.place}") if _spaced(found.text) == gold else wrong(f"differs from {found.place}")


def _spaced(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
