import pytest

from common.messages import Task
from services.reward.texts.regex import verify_regex
from services.reward.verifiers import BadGoldError

FORM = r"^<think>.+</think>\s*<answer>[^<]+</answer>$"


def verdict(output: str, pattern: str, metadata: str = "") -> str:
    return verify_regex(output, Task(verifier="regex", gold=pattern, metadata=metadata)).verdict


def test_a_form_is_searched_in_the_whole_output() -> None:
    assert verdict("<think>so\nmuch</think>\n<answer>4</answer>", FORM) == "correct"
    assert verdict("<answer>4</answer>", FORM) == "wrong"


def test_on_the_answer_the_thinking_does_not_count() -> None:
    assert verdict("<think>no cat</think> a dog", "cat", '{"on": "answer"}') == "wrong"
    assert verdict("<think>no dog</think> a cat", "cat", '{"on": "answer"}') == "correct"
    assert verdict("<think>cat", "cat", '{"on": "answer"}') == "wrong"


@pytest.mark.parametrize(("pattern", "metadata"), [("", ""), ("(", ""), ("a{99999999999}", ""), ("a", '{"on": "x"}')])
def test_a_pattern_that_is_none_is_an_error(pattern: str, metadata: str) -> None:
    with pytest.raises(BadGoldError):
        verdict("a", pattern, metadata)
