import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from common.config import RunConfig
from common.errors import UserError
from common.messages import ChatMessage, Task
from services.filter.config import FilterConfig
from services.filter.dataset import dressed, training_rows
from services.filter.fitting import Fitted, counter, fitted
from services.filter.schema import Row
from tests.unit.filter.models import save_words
from tests.unit.filter.test_dataset import write

SUFFIX = " box it"


def row(number: int, *contents: str) -> Row:
    chat = tuple(ChatMessage(role="user", content=content) for content in contents)
    return Row(number=number, chat=chat, task=Task(verifier="math", gold="1"))


def words(chat: tuple[ChatMessage, ...]) -> int:
    return sum(len(message.content.split()) for message in chat)


def fit(*rows: Row, policy: str, limit: int = 6) -> Fitted:
    config = FilterConfig(data="none", suffix=SUFFIX)
    return fitted(rows, lambda one: dressed(one, config), count=words, limit=limit, policy=policy)


def contents(result: Fitted) -> list[str]:
    return [message.content for one in result.rows for message in one.chat]


def test_a_prompt_at_the_limit_fits_and_one_beyond_it_is_dropped() -> None:
    # with the suffix 4 + 2 = 6 words, and 5 + 2 = 7
    result = fit(row(1, "a b c d"), row(2, "a b c d e"), policy="drop")
    assert (contents(result), result.too_long) == (["a b c d box it"], {2: 7})


@pytest.mark.parametrize(
    ("policy", "kept"), [("truncate_left", " d e f g box it"), ("truncate_right", "a b c d  box it")]
)
def test_a_prompt_is_shortened_on_the_side_that_was_said_and_keeps_the_suffix(policy: str, kept: str) -> None:
    result = fit(row(1, "a b c d e f g"), policy=policy)
    assert (contents(result), result.shortened, result.too_long) == ([kept], [1], {})


def test_only_the_last_message_is_shortened_and_a_prompt_that_stays_too_long_is_dropped() -> None:
    result = fit(row(1, "a b", "c d e f"), row(2, "a b c d e f", "g"), policy="truncate_left")
    assert contents(result) == ["a b", " e f box it"]
    assert result.too_long == {2: 9}


def run(model: Path | str, **changes: Any) -> RunConfig:
    return RunConfig(name="r", **({"model": str(model), "max_prompt_tokens": 6} | changes))


ROWS = [{"prompt": "one two three four", "answer": 1}, {"prompt": "one two three four one", "answer": 1}]


def test_the_rows_of_a_run_fit_its_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # <s> + 4 + <a> = 6, <s> + 5 + <a> = 7
    model, data = save_words(tmp_path / "model"), str(write(tmp_path / "rows.jsonl", ROWS))
    before = REGISTRY.get_sample_value("dapo_filter_rows", {"fate": "too_long"}) or 0
    with caplog.at_level(logging.WARNING):
        rows, _ = training_rows(FilterConfig(data=data), run(model))
    assert [one.number for one in rows] == [1]
    assert [record.message for record in caplog.records] == ["prompts too long, left out"]
    assert REGISTRY.get_sample_value("dapo_filter_rows", {"fate": "too_long"}) == before + 1


def test_a_run_that_must_not_drop_prompts_does_not_start(tmp_path: Path) -> None:
    model, data = save_words(tmp_path / "model"), str(write(tmp_path / "rows.jsonl", ROWS))
    config = FilterConfig(data=data, on_long_prompt="fail")
    with pytest.raises(UserError, match=r"row 2 has 7 tokens after the chat template.*max_prompt_tokens is 6 \(1 such"):
        training_rows(config, run(model))
    assert len(training_rows(config, run(model, max_prompt_tokens=7))[0]) == 2


def test_prompt_and_response_must_fit_what_the_model_was_made_for(tmp_path: Path) -> None:
    model = save_words(tmp_path / "model", max_position_embeddings=64)
    with pytest.raises(UserError, match=r"max_response_tokens = 65, but the model .* was made for 64 tokens"):
        counter(run(model, max_response_tokens=59), FilterConfig(data="none"))
    assert counter(run(model, max_response_tokens=58), FilterConfig(data="none")) is not None


def test_without_a_tokenizer_dropping_is_left_to_the_rollouts_and_nothing_else_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert counter(run("none"), FilterConfig(data="none")) is None
    assert "prompts that are too long are left to the rollouts: model `none`" in caplog.text


def test_without_a_tokenizer_nothing_is_cut(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"counts tokens, but model .* has no tokenizer"):
        counter(run(tmp_path), FilterConfig(data="none", on_long_prompt="truncate_left"))


def test_a_template_of_the_run_counts(tmp_path: Path) -> None:
    template = tmp_path / "plain.jinja"
    template.write_text("{{ messages[0].content }}")
    count = counter(run(save_words(tmp_path / "model"), chat_template=str(template)), FilterConfig(data="none"))
    assert count is not None
    assert count((ChatMessage(role="user", content="one two"),)) == 2
    with pytest.raises(UserError, match=r"\[run\] chat_template .*absent\.jinja cannot be read"):
        counter(run(tmp_path / "model", chat_template=str(tmp_path / "absent.jinja")), FilterConfig(data="none"))
