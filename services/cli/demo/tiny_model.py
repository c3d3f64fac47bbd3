"""A language model of half a million parameters, built and warmed up here, as a Hugging Face folder.

    tokenizer  one token a character, chat template <|user|>...<|end|><|assistant|>
    model      Qwen3 architecture, 2 layers
    warm-up    supervised on demonstrations with bad habits (arithmetic.py), some minutes on two cores

It answers every problem in the asked format and solves about half of them: what reinforcement learning starts from.
"""

import random
import shutil
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.cli.demo.arithmetic import Problem, demonstration
from services.cli.progress import Report

SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
PAD, END = 0, 1
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BATCH, LEARNING_RATE, RISE_STEPS, DECAY_STEPS, MAX_STEPS = 256, 2e-3, 50, 60, 1500
LEARNED_LOSS = 0.065
"""Smoothed loss at which the model knows the demonstrations, habits included: the rest of it is the choice of habit."""
IGNORED = -100


def build(folder: Path, problems: list[Problem], *, seed: int, progress: Report) -> None:
    """Build, warm up and save the model; the folder appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    model = make_model(len(tokenizer))
    warm_up(model, tokenizer, problems, seed=seed, progress=progress)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


def make_tokenizer() -> Any:
    """One token a printable character."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate([*SPECIAL, "<|unknown|>", *string.printable[:95], "\n"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))  # noqa: S106 - not a secret
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[PAD],
        eos_token=SPECIAL[END],
        unk_token="<|unknown|>",  # noqa: S106 - not a secret
        additional_special_tokens=list(SPECIAL[2:]),
    )
    fast.chat_template = TEMPLATE
    return fast


def make_model(vocabulary: int) -> Any:
    """A Qwen3 model with random weights; of a Qwen2 folder transformers would not read this tokenizer as saved."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, head_dim=32, max_position_embeddings=256, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=END, pad_token_id=PAD,
        )
    )  # fmt: skip


def warm_up(model: Any, tokenizer: Any, problems: list[Problem], *, seed: int, progress: Report) -> None:
    """Supervised training on the responses of demonstrations."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1, betas=(0.9, 0.98))
    batches = demonstrations(tokenizer, problems, random.Random(seed))
    smoothed, left = 5.0, MAX_STEPS
    model.train()
    for step in range(MAX_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / RISE_STEPS, left / DECAY_STEPS)
        ids_SL, labels_SL = next(batches)
        optimizer.zero_grad()
        loss = model(input_ids=ids_SL, labels=labels_SL).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        smoothed = 0.95 * smoothed + 0.05 * float(loss.detach())
        left -= 1
        if smoothed < LEARNED_LOSS:
            left = min(left, DECAY_STEPS)
        if left == 0:
            break
        progress("warming up the tiny model", min(1.0, LEARNED_LOSS / smoothed))
    model.eval()


def demonstrations(tokenizer: Any, problems: list[Problem], rng: random.Random) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of (input ids, labels), right-padded, for ever; only responses have labels."""
    characters = tokenizer.get_vocab()
    prompts = [prompt_ids(tokenizer, problem) for problem in problems]
    while True:
        rows = []
        for _ in range(BATCH):
            place = rng.randrange(len(problems))
            response = [*(characters[c] for c in demonstration(problems[place], rng)), END]
            rows.append((prompts[place], response))
        longest = max(len(prompt) + len(response) for prompt, response in rows)
        ids, labels = torch.full((BATCH, longest), PAD), torch.full((BATCH, longest), IGNORED)
        for row, (prompt, response) in enumerate(rows):
            ids[row, : len(prompt) + len(response)] = torch.tensor(prompt + response)
            labels[row, len(prompt) : len(prompt) + len(response)] = torch.tensor(response)
        yield ids, labels


def prompt_ids(tokenizer: Any, problem: Problem) -> list[int]:
    """The prompt of a problem as the rollout renders it."""
    chat = [{"role": "user", "content": problem.prompt}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(text, add_special_tokens=False))
