"""A model folder that is enough to count tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = (
    "{% for m in messages %}{{ '<s> ' + m['content'] + ' ' }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


def save_words(folder: Path, template: str | None = TEMPLATE, **config: Any) -> Path:
    """A model folder whose tokenizer has one token a word."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "<s>", "<a>", "word", "one", "two", "three", "four", "box", "it", "be", "helpful", "user"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]",
        "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": False, "rstrip": False,
                      "single_word": False, "special": True},
    }  # fmt: skip
    if template:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(config))
    return folder
