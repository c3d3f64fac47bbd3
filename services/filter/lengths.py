"""Whether a prompt fits, in tokens after the chat template, before any GPU works.

    chat -> chat template (Jinja) -> text -> tokenizer -> number of tokens   <=   [run] max_prompt_tokens

The filter does it with the libraries `tokenizers` and `jinja2`, a few MB, instead of transformers and torch: so a file
can be refused at the start, and `dapo data check` can say which rows are too long. A rollout still answers a prompt
that does not fit with nothing, whatever happens here: the engine never sees it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.messages import ChatMessage


class Counter:
    """Counts the tokens of prompts."""

    def __init__(self, tokenizer: Any, template: Any, special_tokens: Mapping[str, str]) -> None:
        """`tokenizer` is a `tokenizers.Tokenizer`, `template` a Jinja template or None for plain contents."""
        self._tokenizer = tokenizer
        self._template = template
        self._special_tokens = special_tokens

    @classmethod
    def of_model(cls, files: "ModelFiles", *, template: str = "") -> "Counter":
        """Raises `UserError` if the tokenizer cannot be had. `template` replaces the model's own."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError("the library `tokenizers` is not installed: pip install 'dapo[data]'") from None
        found = files.path("tokenizer.json")
        if found is None:
            raise UserError(f"model `{files.model}` has no tokenizer.json here: give the folder of a model with one")
        config = files.json("tokenizer_config.json")
        text, special_tokens = template or _template_text(files, config), _special_tokens(config)
        tokenizer = Tokenizer.from_file(str(found))
        tokenizer.add_special_tokens(list(special_tokens.values()))  # as transformers does; most have them already
        return cls(tokenizer, compiled(text) if text else None, special_tokens)

    def count(self, chat: Sequence[ChatMessage]) -> int:
        """Tokens of a prompt, as a rollout counts them (common/chat.py)."""
        if self._template is None:
            return len(self._tokenizer.encode("\n".join(message.content for message in chat)).ids)
        return len(self._tokenizer.encode(self._rendered(chat), add_special_tokens=False).ids)

    def fits(self, chat: Sequence[ChatMessage], limit: int) -> bool:
        """Whether it has at most `limit` tokens."""
        return self.count(chat) <= limit

    def _rendered(self, chat: Sequence[ChatMessage]) -> str:
        messages = [{"role": message.role, "content": message.content} for message in chat]
        return str(self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens))


def compiled(template: str) -> Any:
    """A chat template in the environment that transformers gives it."""
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise UserError(f"the chat template cannot be read: {error}") from error


class ModelFiles:
    """The small files of a model: of a folder, or of the hub, asked for or only as far as they were fetched before."""

    def __init__(self, model: str, *, download: bool) -> None:
        self.model = model
        self._download = download

    def path(self, name: str) -> Path | None:
        """Where a file is; None if there is none."""
        if Path(self.model).is_dir():
            path = Path(self.model) / name
            return path if path.exists() else None
        try:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(self.model, name, local_files_only=not self._download))
        except (ImportError, OSError, ValueError):
            return None

    def json(self, name: str) -> Mapping[str, Any]:
        """The content of a JSON file; empty if there is none."""
        path = self.path(name)
        return json.loads(path.read_text(encoding="utf-8")) if path is not None else {}

    @property
    def most_tokens(self) -> int | None:
        """Prompt and response together, that the model was made for; None if it does not say."""
        length = self.json("config.json").get("max_position_embeddings")
        return length if isinstance(length, int) else None


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    import datetime

    return datetime.datetime.now().strftime(form)


def _template_text(files: ModelFiles, config: Mapping[str, Any]) -> str:
    """The template in its own file, or in the tokenizer's configuration, where there may be several by name."""
    own = files.path("chat_template.jinja")
    if own is not None:
        return own.read_text(encoding="utf-8")
    given = config.get("chat_template") or ""
    if isinstance(given, list):
        given = next((one["template"] for one in given if one.get("name") == "default"), "")
    return str(given)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {key: value for key, value in config.items() if key.endswith("_token") and value}
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in tokens.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}
