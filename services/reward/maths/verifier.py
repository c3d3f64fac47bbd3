"""The verifier `math`: output -> final answer -> one spelling -> equal to the gold?"""

from common.messages import Task, Verdict
from services.reward.maths.boxes import last_boxes
from services.reward.maths.equivalence import same_answer
from services.reward.maths.extraction import final_answer
from services.reward.maths.limits import TooLargeError
from services.reward.maths.notation import canonical, key
from services.reward.verifiers import BAD_GOLD, TIMEOUT, correct, error, wrong

MAX_ANSWER = 4_000
"""Longer answers, in characters, are compared sign by sign."""


def verify_math(output: str, task: Task) -> Verdict:
    """Whether the final answer of `output` is the gold, as mathematics."""
    gold = gold_form(task.gold)
    if not key(gold):
        return error(BAD_GOLD)
    found = final_answer(output)
    if found is None:
        return wrong("no answer")
    try:
        same = _same(gold, found.text)
    except TooLargeError as limit:
        return wrong(f"{TIMEOUT} (foreseen): {limit}")
    return correct(f"same as {found.place}") if same else wrong(f"differs from {found.place}")


def _same(gold: str, answer: str) -> bool:
    if max(len(gold), len(answer)) > MAX_ANSWER:
        return gold == answer.strip()
    return same_answer(gold, canonical(answer))


def gold_form(text: str) -> str:
    """The gold in one spelling, without a box or the worked solution of GSM8K around it."""
    boxes = last_boxes(text)
    if boxes is not None and boxes.contents:
        text = ", ".join(boxes.contents)
    text = text.rsplit("####", 1)[-1].strip()
    return canonical(text) if len(text) <= MAX_ANSWER else text
