"""Chat to prompt tokens, response tokens to text, and the tokens that end a response."""

from collections.abc import Sequence
from typing import Any

from common.chat import prompt_ids
from common.errors import UserError
from common.messages import ChatMessage


class Template:
    """The tokenizer of the model with its chat template."""

    def __init__(self, tokenizer: Any, *, stop_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.stop_token_ids = list(stop_token_ids)

    @classmethod
    def of_model(cls, model: str, *, template: str = "") -> "Template":
        """Load the tokenizer of a Hugging Face folder or hub name; `template` replaces its chat template."""
        from transformers import AutoTokenizer, GenerationConfig

        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise UserError(f"[run] model `{model}`: its tokenizer cannot be loaded ({error})") from error
        if template:
            tokenizer.chat_template = template
        try:
            generation_eos = GenerationConfig.from_pretrained(model).eos_token_id
        except OSError:
            generation_eos = None
        return cls(tokenizer, stop_token_ids=stop_tokens(tokenizer.eos_token_id, generation_eos))

    def prompt_ids(self, chat: Sequence[ChatMessage]) -> list[int]:
        """Token ids of the prompt."""
        return prompt_ids(self._tokenizer, chat)

    def text(self, token_ids: Sequence[int]) -> str:
        """The response as the verifier reads it, without special tokens."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))


def stop_tokens(*eos: int | Sequence[int] | None) -> list[int]:
    """All end-of-sequence ids that the tokenizer and the generation configuration name."""
    ids: set[int] = set()
    for value in eos:
        ids.update([value] if isinstance(value, int) else value or [])
    return sorted(ids)
