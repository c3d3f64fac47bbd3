"""`dapo verify --explain ID`: what a verifier saw in one row, step by step, before its verdict.

output -> what of it answers -> the answer in one spelling; gold answer -> in one spelling

The steps are made in this process, without a time limit; the verdict comes from a worker as always.
"""

from collections.abc import Callable, Iterator

from common.messages import Task
from services.reward.texts.response import response
from services.reward.verifiers import BadGoldError

Steps = Iterator[tuple[str, str]]


def steps(output: str, task: Task) -> Steps:
    """(what, text) in order."""
    yield "verifier", task.verifier
    yield "gold answer", task.gold
    if task.metadata:
        yield "metadata", task.metadata
    try:
        yield from _OF.get(task.verifier, _response)(output, task)
    except BadGoldError as error:
        yield "what the row asks for cannot be read", str(error)


def _response(output: str, task: Task) -> Steps:
    text = response(output)
    yield "answer, after thinking and tag", text if text is not None else "none: the thinking or the tag never ends"


def _final(output: str) -> tuple[str, str]:
    from services.reward.maths.extraction import final_answer

    found = final_answer(output)
    return (f"final answer, from {found.place}", found.text) if found else ("final answer", "none")


def _math(output: str, task: Task) -> Steps:
    from services.reward.maths.extraction import final_answer
    from services.reward.maths.notation import canonical
    from services.reward.maths.verifier import gold_form

    yield _final(output)
    found = final_answer(output)
    if found:
        yield "final answer, in one spelling", canonical(found.text)
    yield "gold answer, in one spelling", gold_form(task.gold)


def _exact(output: str, task: Task) -> Steps:
    yield _final(output)


def _choice(output: str, task: Task) -> Steps:
    from services.reward.texts.choice import answer_of, choices_of, letters

    known, text = choices_of(task), answer_of(output)
    yield "answer", text if text is not None else "none"
    yield "its letters", letters(text or "", known) or "none"
    yield "letters of the gold answer", letters(task.gold, known) or "none"


def _classification(output: str, task: Task) -> Steps:
    from services.reward.texts.classification import labels_of, predicted

    yield from _response(output, task)
    yield "labels", ", ".join(labels_of(task)) or "any"
    yield "label", predicted(output, labels_of(task)) or "none"


def _code(output: str, task: Task) -> Steps:
    from services.reward.code.cases import cases_of
    from services.reward.code.extraction import program_of

    tests = cases_of(task)
    yield "tests", f"{len(tests.cases)}, of {tests.function or 'what is read and printed'}"
    yield "program", program_of(output, tests.function) or "none"


_OF: dict[str, Callable[[str, Task], Steps]] = {
    "math": _math, "exact": _exact, "choice": _choice, "classification": _classification, "code": _code,
}  # fmt: skip
