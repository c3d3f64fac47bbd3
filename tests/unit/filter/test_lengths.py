import json
from pathlib import Path

import pytest

from common import chat as common_chat
from common.errors import UserError
from common.messages import ChatMessage
from services.filter.lengths import Counter, ModelFiles, compiled
from tests.unit.filter.models import TEMPLATE, save_words

jinja2 = pytest.importorskip("jinja2")

CHATML = (
    "{%- if messages[0]['role'] != 'system' -%}\n    {{- '<s> be helpful ' }}\n{%- endif %}\n"
    "{%- for m in messages %}\n    {{- bos_token + ' ' + m.role + ' ' + m['content'] | trim }}\n"
    "    {%- if loop.last %}{{ ' <a>' }}{% break %}{% endif %}\n{% endfor %}{{ messages | tojson }}"
)


def chat(*contents: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=content) for content in contents]


def counter(folder: Path, template: str = "") -> Counter:
    return Counter.of_model(ModelFiles(str(folder), download=False), template=template)


def test_the_length_is_counted_after_the_template(tmp_path: Path) -> None:
    # <s> + 3 words + <a>, and without a template the words alone
    assert counter(save_words(tmp_path / "a")).count(chat("one two three")) == 5
    assert counter(save_words(tmp_path / "b", None)).count(chat("one two three", "four")) == 4


def test_a_template_of_the_run_replaces_the_model_s(tmp_path: Path) -> None:
    assert counter(save_words(tmp_path / "a"), "{{ messages[0].content }}").count(chat("one two three")) == 3


def test_a_template_in_its_own_file_and_a_default_among_several_are_found(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "a")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": [{"name": "tools", "template": ""}, {"name": "default", "template": "one one"}]})
    )
    assert counter(folder).count(chat("x")) == 2
    (folder / "chat_template.jinja").write_text("one one one")
    assert counter(folder).count(chat("x")) == 3


@pytest.mark.parametrize("template", [TEMPLATE, CHATML, None])
def test_the_filter_counts_what_a_rollout_counts(tmp_path: Path, template: str | None) -> None:
    transformers = pytest.importorskip("transformers")
    folder = save_words(tmp_path / "a", template)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for contents in (["one two three"], [" four\n", "é <b> & 'x'", "box it"]):
        assert counter(folder).count(chat(*contents)) == len(common_chat.prompt_ids(theirs, chat(*contents)))


def test_a_template_that_cannot_be_read_is_said() -> None:
    with pytest.raises(UserError, match="the chat template cannot be read"):
        compiled("{% for %}")


def test_a_template_may_refuse_a_chat_and_ask_for_the_date(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "a")
    assert counter(folder, "{{ strftime_now('%Y') }}").count(chat("x")) == 1
    with pytest.raises(jinja2.TemplateError, match="roles must alternate"):
        counter(folder, "{{ raise_exception('roles must alternate') }}").count(chat("x"))


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path: Path) -> None:
    reach = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(jinja2.sandbox.SecurityError):
        counter(save_words(tmp_path / "a"), reach).count(chat("x"))


def test_what_the_model_was_made_for_is_in_its_configuration(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "a", max_position_embeddings=64)
    assert ModelFiles(str(folder), download=False).most_tokens == 64
    assert ModelFiles(str(save_words(tmp_path / "b")), download=False).most_tokens is None


def test_without_a_tokenizer_the_user_is_told(tmp_path: Path) -> None:
    for model in (str(tmp_path), "nobody/nothing"):
        with pytest.raises(UserError, match=f"model `{model}` has no tokenizer.json here"):
            Counter.of_model(ModelFiles(model, download=False))
