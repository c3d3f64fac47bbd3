from typing import Any

import pytest

from services.filter.answers import boxed
from services.filter.schema import Refusal, Row, parse

MESSAGES = [{"role": "user", "content": "How many?"}]


@pytest.mark.parametrize(
    "raw",
    [
        # DAPO-Math-17k, as published and as processed for TRL
        {
            "data_source": "math_dapo", "prompt": MESSAGES, "ability": "MATH",
            "reward_model": {"ground_truth": "72", "style": "rule-lighteval/MATH_v2"}, "extra_info": {"index": "9a"},
        },
        {"prompt": "How many?", "solution": "72", "data_source": "math_dapo", "ability": "MATH"},
        # TRL: conversational and plain prompts
        {"prompt": MESSAGES, "ground_truth": "72"},
        {"prompt": MESSAGES, "solution": "It is $70+2=\\boxed{72}$."},
        # DeepMath, MATH, Numina
        {"question": "How many?", "final_answer": "72", "r1_solution_1": "..."},
        {"problem": "How many?", "level": "Level 5", "solution": "First \\boxed{9}, then \\boxed{72}."},
        {"problem": "How many?", "solution": "so \\boxed{71}", "answer": "72"},
        # OpenRLHF, its keys by their usual names
        {"input": "How many?", "label": "72"},
        {"context_messages": MESSAGES, "label": 72},
        # prime-rl and verifiers
        {"question": "How many?", "answer": "72", "info": {"difficulty": 3}, "task": "math"},
        {"prompt": MESSAGES, "info": '{"ground_truth": "72"}'},
        {"prompt": "How many?", "verification_info": '{"ground_truth": "72"}', "task_type": "verifiable_math"},
        {"prompt": "How many?", "verification_info": {"ground_truth": 72}},
        # raw GSM8K
        {"question": "How many?", "answer": "70 + 2 = <<70+2=72>>72\n#### 72"},
    ],
)  # fmt: skip
def test_a_row_of_every_usual_form_gives_prompt_and_answer(raw: dict[str, Any]) -> None:
    row = parse(1, raw)
    assert isinstance(row, Row), row
    assert (row.chat[-1].content, row.task.gold) == ("How many?", "72")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("thus \\boxed{\\frac{1}{2}} holds", "\\frac{1}{2}"),
        ("\\boxed{ 7 }", "7"),
        ("no box", "no box"),
        ("\\boxed{never closed", "\\boxed{never closed"),
    ],
)
def test_the_answer_of_a_solution_is_in_its_last_box(solution: str, answer: str) -> None:
    assert boxed(solution) == answer


@pytest.mark.parametrize("info", ["{broken", "[1]", None, 7])
def test_info_that_is_no_object_is_no_answer(info: Any) -> None:
    refusal = parse(1, {"prompt": "x", "info": info})
    assert isinstance(refusal, Refusal)
    assert "answer is missing" in refusal.reason


def test_a_reasoning_gym_row_is_compared_as_text() -> None:
    row = parse(1, {"prompt": "x", "answer": "a b", "data_source": "reasoning_gym/word_sorting"})
    assert isinstance(row, Row)
    assert row.task.verifier == "exact"
