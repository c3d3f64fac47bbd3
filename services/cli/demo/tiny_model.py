"""A language model of less than half a million parameters, built and warmed up here, as a Hugging Face folder.

    tokenizer  one token a character, and one for "\\boxed{"; chat template <|user|>...<|end|><|assistant|>
    model      Qwen3 architecture, 2 layers
    warm-up    supervised on demonstrations with bad habits (arithmetic.py), half a minute on two cores

It answers every problem in the asked format and solves about a third of them: what reinforcement learning starts from.
The matrices of the layers are trained by Muon, which needs half the steps of AdamW here; all else by AdamW.
"""

import random
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

from common.chat import prompt_ids
from common.messages import ChatMessage
from services.cli.demo.arithmetic import Problem, demonstration
from services.cli.demo.cached import made_anew
from services.cli.progress import Report

SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
PAD, END = 0, 1
UNKNOWN = "<|unknown|>"
BOX = "\\boxed{"
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STEPS, RISE_STEPS, FALL_STEPS, BATCH = 500, 20, 100, 128
MUON_RATE, ADAMW_RATE = 0.03, 4e-3
IGNORED = -100


def build(folder: Path, problems: list[Problem], *, sources: Sequence[Path], seed: int, progress: Report) -> None:
    """Build, warm up and save the model."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    model = make_model(len(tokenizer))
    warm_up(model, tokenizer, problems, seed=seed, progress=progress)
    with made_anew(folder, sources) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def make_tokenizer() -> Any:
    """One token a printable character, and one that opens the box."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = [*SPECIAL, UNKNOWN, *string.printable[:95], "\n", BOX]
    tokenizer = Tokenizer(models.WordLevel({token: place for place, token in enumerate(tokens)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[PAD],
        eos_token=SPECIAL[END],
        unk_token=UNKNOWN,
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
    optimizers = make_optimizers(model)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, share_of_rate) for optimizer in optimizers]
    batches = demonstrations(tokenizer, problems, random.Random(seed))
    model.train()
    for step in range(STEPS):
        progress("warming up the tiny model", step / STEPS)
        ids_SL, labels_SL = next(batches)
        model.zero_grad()
        model(input_ids=ids_SL, labels=labels_SL).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
    progress("warming up the tiny model", 1.0)
    model.eval()


def make_optimizers(model: Any) -> list[Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        Muon(matrices, lr=MUON_RATE, weight_decay=0.0),
        AdamW(others, lr=ADAMW_RATE, weight_decay=0.0, betas=(0.9, 0.95)),
    ]


def share_of_rate(step: int) -> float:
    """Of the learning rate: it rises, stays, and falls."""
    return min(1.0, (step + 1) / RISE_STEPS, (STEPS - step) / FALL_STEPS)


def demonstrations(tokenizer: Any, problems: list[Problem], rng: random.Random) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of (input ids, labels), right-padded, for ever; only responses have labels."""
    prompts = [prompt_ids(tokenizer, [ChatMessage(role="user", content=p.prompt)]) for p in problems]
    while True:
        rows = []
        for _ in range(BATCH):
            place = rng.randrange(len(problems))
            rows.append((prompts[place], [*tokenizer.encode(demonstration(problems[place], rng)), END]))
        longest = max(len(prompt) + len(response) for prompt, response in rows)
        ids, labels = torch.full((BATCH, longest), PAD), torch.full((BATCH, longest), IGNORED)
        for row, (prompt, response) in enumerate(rows):
            ids[row, : len(prompt) + len(response)] = torch.tensor(prompt + response)
            labels[row, len(prompt) : len(prompt) + len(response)] = torch.tensor(response)
        yield ids, labels
