import json

import pytest

from common.messages import Task
from services.reward.texts.choice import verify_choice
from services.reward.verifiers import BadGoldError

CITIES = {"choices": ["Rome", "Paris", "Oslo", "None of the above"]}


def verdict(output: str, gold: str = "B", metadata: object = None) -> str:
    task = Task(verifier="choice", gold=gold, metadata=json.dumps(metadata) if metadata else "")
    return verify_choice(output, task).verdict


@pytest.mark.parametrize(
    "output",
    [
        r"\boxed{B}", r"\boxed{\text{B}}", r"\boxed{(B)}", r"\boxed{\text{(B)}}", "Answer: B", "**Answer:** (b)",
        "The answer is B.", "I think the answer is option B.", "<answer>B</answer>", "<think>A? C?</think> B", "B",
        "(B)", "Answer: B. Paris", "Answer: B) Paris", "Answer: B: the capital of France", "thinking\n\nAnswer: **B**",
        "Answer: [B]", "The correct answer is (B) because A and C are not in France.",
    ],
)  # fmt: skip
def test_a_letter_is_read_however_it_is_written(output: str) -> None:
    assert verdict(output) == "correct"


@pytest.mark.parametrize(
    "output",
    [
        "", "A", "Answer: C", r"\boxed{A}\boxed{B}", r"\boxed{A, B}", "Answer: A or B", "Answer: B or C", "Answer: B/C",
        "Answer: B) or C)", "Answer: B (or A)", "The answer is not B", "Answer: Bad question", "Answer: B A", "A B C D",
        "<think>B</think>", "<think>B", "<answer>B", "Answer: ABCD", "Answer: A, B, C, D",
    ],
)  # fmt: skip
def test_another_letter_several_or_none_is_wrong(output: str) -> None:
    assert verdict(output) == "wrong"


@pytest.mark.parametrize("output", ["Answer: Paris", r"\boxed{Paris}", "Answer: paris.", "Answer: B. Paris"])
def test_with_the_choices_a_text_counts_as_its_letter(output: str) -> None:
    assert verdict(output, metadata=CITIES) == "correct"
    assert verdict(output, gold="Paris", metadata=CITIES) == "correct"


@pytest.mark.parametrize("output", ["Answer: B. Rome", "Answer: Paris or Rome", "Answer: Berlin", "Answer: E"])
def test_a_letter_with_the_text_of_another_is_wrong(output: str) -> None:
    assert verdict(output, metadata=CITIES) == "wrong"


def test_a_gold_answer_of_several_letters_needs_them_all() -> None:
    assert verdict("Answer: C, A", gold="A, C") == "correct"
    assert verdict("Answer: A and C", gold="A,C") == "correct"
    for output in ("Answer: A", "Answer: A, B, C", "Answer: A or C"):
        assert verdict(output, gold="A, C") == "wrong"


def test_a_choice_with_letters_in_it_is_no_list_of_letters() -> None:
    vitamins = {"choices": ["Vitamin D", "Vitamins A and C"]}
    assert verdict("Answer: B. Vitamins A and C", metadata=vitamins) == "correct"


@pytest.mark.parametrize("gold", ["", "E", "Berlin"])
def test_a_gold_answer_that_is_no_choice_is_an_error(gold: str) -> None:
    with pytest.raises(BadGoldError):
        verdict("Answer: B", gold=gold, metadata=CITIES)
