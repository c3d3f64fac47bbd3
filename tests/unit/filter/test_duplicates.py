import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.messages import ChatMessage, Task
from services.filter.duplicates import Found, Uniques, normalised
from services.filter.schema import Row


def found(*rows: tuple[str, str]) -> Found:
    uniques = Uniques()
    for number, (prompt, gold) in enumerate(rows, start=1):
        chat = (ChatMessage(role="user", content=prompt),)
        uniques.add(Row(number=number, chat=chat, task=Task(verifier="math", gold=gold)))
    return uniques.found()[0]


@pytest.mark.parametrize(
    "other",
    ["What is  2 + 2?", " What is 2 + 2?\n", "What is\u00a02 + 2?", "What is 2 + 2?\r\n", "What\u200b is 2 + 2?"],
)
def test_a_prompt_that_differs_in_spaces_is_nearly_the_same(other: str) -> None:
    result = found(("What is 2 + 2?", "4"), (other, "4"))
    assert ([row.number for row in result.rows], result.duplicates, result.near) == ([1], [], [2])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x² = 4", "x2 = 4"),
        ("Let A be a set", "let a be a set"),
        ("if x:\n    y()\nz()", "if x:\n    y()\n    z()"),
        ("2 - 1", "2 \u2212 1"),
    ],
)
def test_what_may_change_the_question_tells_prompts_apart(one: str, other: str) -> None:
    result = found((one, "1"), (other, "2"))
    assert (len(result.rows), result.near, result.conflicts) == (2, [], [])


def test_accents_written_in_two_ways_are_one() -> None:
    assert found(("caf\u00e9", "1"), ("cafe\u0301", "1")).near == [2]


def test_near_duplicates_with_different_answers_contradict_each_other() -> None:
    assert found(("P 1", "1"), ("P  1", "2"), ("Q", "3")).conflicts == [1, 2]


def test_copies_of_a_near_duplicate_are_all_left_out() -> None:
    result = found(("P 1", "1"), ("P  1", "1"), ("P  1", "1"), ("P 1", "1"))
    assert (result.near, result.duplicates) == ([2, 3], [4])


def test_the_same_words_in_other_roles_are_another_prompt() -> None:
    uniques = Uniques()
    for number, role in ((1, "user"), (2, "assistant")):
        chat = (ChatMessage(role=role, content="x"), ChatMessage(role="user", content="y"))
        uniques.add(Row(number=number, chat=chat, task=Task(verifier="math", gold="1")))
    assert len(uniques.found()[0].rows) == 2


rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", " ", "\n"]), st.integers(0, 1)), max_size=20)


@given(rows)
def test_every_row_is_in_exactly_one_place(rows: list[tuple[int, str, int]]) -> None:
    result = found(*((f"P{prompt}{space}", str(gold)) for prompt, space, gold in rows))
    numbers = [row.number for row in result.rows] + result.duplicates + result.near + result.conflicts
    assert sorted(numbers) == list(range(1, len(rows) + 1))
    for prompt in range(4):
        golds = {gold for p, _, gold in rows if p == prompt}
        used = [row for row in result.rows if row.chat[0].content.strip() == f"P{prompt}"]
        assert len(used) == (1 if len(golds) == 1 else 0)


@given(st.text())
def test_a_normal_form_is_its_own_normal_form(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)
