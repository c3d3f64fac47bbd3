"""A chat as the tokens that a model reads, for whoever has the model's tokenizer. No tokenizer library is imported."""

from collections.abc import Sequence
from typing import Any

from common.messages import ChatMessage


def prompt_ids(tokenizer: Any, chat: Sequence[ChatMessage]) -> list[int]:
    """Token ids of the prompt: the chat template with its generation prompt, or the plain contents without one."""
    if tokenizer.chat_template is None:
        return list(tokenizer.encode("\n".join(message.content for message in chat)))
    messages = [{"role": message.role, "content": message.content} for message in chat]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(text, add_special_tokens=False))
