"""A reasoning-gym data set by name, generated once and kept in cache/gym. Needs the library `reasoning-gym`.

gym:NAME?size=500&seed=1&KEY=VALUE    further keys are the data set's own settings, for instance max_animals=5

A row is {prompt, answer, data_source: "reasoning_gym/NAME", metadata}. The library scores the answer (verifier
`reasoning_gym`) unless another verifier is named; the reward service then needs it too.
"""

import difflib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import UserError
from services.filter import reading

CACHE = Path("cache/gym")
SOURCE = "reasoning_gym/"
DEFAULTS = {"size": 1000, "seed": 0}


def rows(name: str, options: Mapping[str, str]) -> Iterator[tuple[int, Any]]:
    """(number from 1, row); generated if no file of the cache has it."""
    settings = DEFAULTS | {key: _value(text) for key, text in options.items()}
    digest = hashlib.sha256(json.dumps([name, settings], sort_keys=True).encode()).hexdigest()[:12]
    path = CACHE / f"{name}-{digest}.jsonl"
    if not path.exists():
        _write(path, name, settings)
    return reading.rows(path)


def _write(path: Path, name: str, settings: Mapping[str, Any]) -> None:
    """The whole file or none."""
    lines = [json.dumps(row, default=str) + "\n" for row in _generated(name, settings)]
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text("".join(lines), encoding="utf-8")
    draft.replace(path)


def _generated(name: str, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise UserError(
            f"data gym:{name} needs the library `reasoning-gym`, which is not installed: pip install 'dapo[data]'"
        ) from None
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(sorted(DATASETS))}"
        raise UserError(f"data gym:{name} is no data set of reasoning-gym; {hint}")
    try:
        generated = reasoning_gym.create_dataset(name, **settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"data gym:{name} cannot be generated with {dict(settings)}: {error}") from error
    for item in generated:
        yield {
            "prompt": item["question"], "answer": item["answer"], "data_source": f"{SOURCE}{name}",
            "metadata": item["metadata"],
        }  # fmt: skip


def _value(text: str) -> Any:
    """A number, a truth value or a list as JSON writes them, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
