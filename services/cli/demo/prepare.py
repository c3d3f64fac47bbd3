"""Makes what configs/demo.toml names under cache/ and is not there yet."""

import json
from pathlib import Path

from services.cli.demo.arithmetic import Problem, problems
from services.cli.demo.tiny_model import Progress

MODEL, TRAIN, HELD_OUT = "demo-model", "demo-train.jsonl", "demo-held-out.jsonl"


def prepare_demo(cache: Path, *, seed: int, progress: Progress) -> None:
    """Write the demo's data and its warmed-up model into `cache`, unless they are there."""
    train, held_out = problems()
    cache.mkdir(parents=True, exist_ok=True)
    _write_rows(cache / TRAIN, train)
    _write_rows(cache / HELD_OUT, held_out)
    if not (cache / MODEL).exists():
        from services.cli.demo.tiny_model import build

        build(cache / MODEL, train, seed=seed, progress=progress)


def _write_rows(path: Path, rows: list[Problem]) -> None:
    path.write_text("".join(json.dumps(problem.row()) + "\n" for problem in rows))
