from decimal import Decimal
from typing import Any

import pytest

from services.filter.judging import Judging
from services.filter.schema import Refusal, Row, parse

VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "How many?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "72"},
    "extra_info": {"index": 0, "split": "train"},
}
GSM8K = {"question": "Natalia sold clips. How many?", "answer": "48/2 = <<48/2=24>>24\n#### 72"}
OWN = {"prompt": "How many?", "answer": 72, "data_source": "own"}
CHAT = {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}], "gold": "72"}


def usable(raw: Any, **options: Any) -> Row:
    row = parse(1, raw, **options)
    assert isinstance(row, Row), row
    return row


@pytest.mark.parametrize("raw", [VERL, GSM8K, OWN, CHAT, {"prompt": "How many?", "gold": " 72\n"}])
def test_every_schema_gives_prompt_and_answer(raw: dict[str, Any]) -> None:
    row = usable(raw)
    assert (row.task.gold, row.task.verifier) == ("72", "math")
    assert row.chat[-1].role == "user"
    assert "How many?" in row.chat[-1].content


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        # D35 (3) to (6), (8), and D05
        ({"prompt": None, "answer": "1"}, "missing or null"),
        ({"answer": "1"}, "missing or null"),
        ({"prompt": [], "answer": "1"}, "the prompt is empty"),
        ({"prompt": "", "answer": "1"}, "the prompt is empty"),
        ({"prompt": " \n", "answer": "1"}, "the prompt is empty"),
        ({"prompt": [{"role": "user", "content": ""}], "answer": "1"}, "the prompt is empty"),
        (VERL | {"reward_model": {"style": "rule"}}, "answer is missing or empty"),
        (VERL | {"reward_model": {"style": "rule", "ground_truth": None}}, "answer is missing or empty"),
        ({"prompt": "x"}, "answer is missing or empty"),
        ({"prompt": "x", "answer": ""}, "answer is missing or empty"),
        ({"prompt": "x", "answer": None}, "answer is missing or empty"),
        ({"question": "x", "answer": "so much #### "}, "answer is missing or empty"),
        (VERL | {"data_source": "acme/riddles"}, "data_source `acme/riddles` is unknown"),
        ({"prompt": "x", "answer": "1", "verifier": "mth"}, "`mth` is unknown; known are math, exact, regex"),
        # what else would have failed later
        ({"prompt": [{"role": "user"}], "answer": "1"}, "lacks `role`, or its `content` is not text"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}], "answer": "1"}, "`content` is not text"),
        ({"prompt": ["x"], "answer": "1"}, "lacks `role`"),
        ({"prompt": [{"role": "human", "content": "x"}], "answer": "1"}, "has role `human`; known are system, user"),
        ({"prompt": b"x", "answer": "1"}, "neither text nor a list"),
        ({"prompt": "x", "answer": ["1", "2"]}, "the answer is of type list: give text or a number"),
        ({"prompt": "x", "answer": float("nan")}, "the answer is nan"),
        ({"prompt": "x", "answer": True}, "the answer is True"),
        ({"prompt": "x \ud800", "answer": "1"}, "not valid Unicode"),
        ({"prompt": "x" * (1 << 23), "answer": "1"}, "does not fit a message"),
        (["x"], "not an object"),
        (None, "not an object"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(raw: Any, reason: str) -> None:
    refusal = parse(7, raw)
    assert isinstance(refusal, Refusal)
    assert refusal.number == 7
    assert reason in refusal.reason


@pytest.mark.parametrize(("answer", "gold"), [(0, "0"), (42, "42"), (0.5, "0.5"), (Decimal("1.50"), "1.50")])
def test_a_number_is_an_answer(answer: Any, gold: str) -> None:
    assert usable({"prompt": "x", "answer": answer}).task.gold == gold


def test_a_row_with_the_columns_of_several_schemas_uses_those_that_are_filled() -> None:
    # Parquet gives every row every column
    assert usable({"prompt": None, "question": "x", "answer": "#### 3", "reward_model": None}).task.gold == "3"
    assert usable({"prompt": "x", "question": None, "answer": None, "gold": "4"}).task.gold == "4"


def test_the_mark_of_gsm8k_means_nothing_in_an_answer_of_our_own_schema() -> None:
    assert usable({"prompt": "x", "answer": "#### 3"}).task.gold == "#### 3"


def test_a_verifier_is_taken_from_the_row_then_from_the_user_then_from_the_data_source() -> None:
    assert usable(VERL | {"verifier": "exact"}, judging=Judging(verifier="math")).task.verifier == "exact"
    assert usable(VERL, judging=Judging(verifier="exact")).task.verifier == "exact"
    assert usable(VERL | {"data_source": "acme/riddles"}, judging=Judging(verifier="exact")).task.verifier == "exact"
    assert usable(VERL | {"data_source": "aime2025"}).task.verifier == "math"


def test_in_our_own_schema_the_data_source_is_a_label() -> None:
    assert usable(OWN | {"data_source": "my-own-category"}).task.data_source == "my-own-category"


def test_tests_stand_in_for_an_answer() -> None:
    task = usable({"prompt": "x", "tests": [{"input": "1", "output": "2"}]}).task
    assert task.tests == '[{"input": "1", "output": "2"}]'


@pytest.mark.parametrize(
    "raw",
    [
        {"prompt": "x", "tests": {"inputs": ["1"], "outputs": ["1"]}},
        {"question": "x", "input_output": '{"inputs": ["1"], "outputs": ["1"]}'},
        {"question_content": "x", "public_test_cases": '[{"input": "1", "output": "1", "testtype": "stdin"}]'},
        {"prompt": "x", "verification_info": '{"test_cases": [{"input": "1", "output": "1"}]}'},
        {
            "prompt": [{"role": "user", "content": "x"}], "data_source": "taco",
            "reward_model": {"ground_truth": '{"inputs": ["1"], "outputs": ["1"]}'},
        },
    ],
    ids=["own", "apps and taco", "livecodebench", "prime-rl", "verl"],
)  # fmt: skip
def test_a_row_with_tests_is_judged_by_running_its_programs(raw: dict[str, Any]) -> None:
    task = usable(raw).task
    assert task.verifier == "code"
    assert '"1"' in (task.tests or task.gold)


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ({"inputs": [], "outputs": []}, "there are no tests"), ({"inputs": ["1"], "outputs": []}, "1 inputs, but 0"),
        ("eJxr", "not JSON"), ({"cases": 1}, "lack `inputs` or `outputs`"), ([1], "neither"),
    ],
)  # fmt: skip
def test_tests_that_would_pass_every_program_are_refused(tests: Any, said: str) -> None:
    refusal = parse(7, {"prompt": "x", "tests": tests})
    assert isinstance(refusal, Refusal)
    assert said in refusal.reason
