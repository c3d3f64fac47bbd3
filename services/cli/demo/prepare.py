"""Makes what the configurations of this repository name under cache/ and is not there yet.

cache/demo-model      demo-train.jsonl, demo-held-out.jsonl      configs/demo.toml
cache/smollm2-135m    smollm2-train.jsonl                        configs/smollm2.toml
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.cli.demo import smollm2
from services.cli.demo.arithmetic import problems
from services.cli.demo.cached import is_current, write_text
from services.cli.progress import Report

HERE = Path(__file__).parent
DEMO, SMOLLM2 = "demo-model", "smollm2-135m"
SOURCES = {DEMO: [HERE / "arithmetic.py", HERE / "tiny_model.py"], SMOLLM2: [HERE / "smollm2.py"]}
"""By model: the code that makes it and its data."""
WARM_UP_SEED = 0


def is_missing(model: str, data: Sequence[str]) -> bool:
    """Whether a run on `model` and `data` needs `prepare` first."""
    path = Path(model)
    if path.parent.name != "cache" or path.name not in SOURCES:
        return False
    return not (is_current(path, SOURCES[path.name]) and all(Path(name).exists() for name in data))


def prepare(model: str, progress: Report) -> None:
    """Make the model that `model` names, unless it is there, and the data that belong to it."""
    path = Path(model)
    (prepare_demo if path.name == DEMO else prepare_smollm2)(path.parent, progress)


def prepare_demo(cache: Path, progress: Report) -> None:
    """Arithmetic problems and the tiny model that was warmed up on them."""
    train, held_out = problems()
    _write_rows(cache / "demo-train.jsonl", [problem.row() for problem in train])
    _write_rows(cache / "demo-held-out.jsonl", [problem.row() for problem in held_out])
    if not is_current(cache / DEMO, SOURCES[DEMO]):
        from services.cli.demo.tiny_model import build

        # One seed for all runs: the cached model must not depend on which of them came first.
        build(cache / DEMO, train, sources=SOURCES[DEMO], seed=WARM_UP_SEED, progress=progress)


def prepare_smollm2(cache: Path, progress: Report) -> None:
    """Word problems and the pretrained model."""
    _write_rows(cache / "smollm2-train.jsonl", smollm2.problems())
    if not is_current(cache / SMOLLM2, SOURCES[SMOLLM2]):
        progress("converting SmolLM2-135M", 0.0)
        smollm2.convert(cache / SMOLLM2, sources=SOURCES[SMOLLM2])
        progress("converting SmolLM2-135M", 1.0)


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
