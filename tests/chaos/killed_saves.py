"""Saves that are killed: a child per save, SIGKILL at a random moment of it, and what a resume would find.

python -m tests.chaos.killed_saves FOLDER TIMES SEED        prints one JSON list: the step that loads after every kill
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from services.learner import checkpoint
from services.learner.checkpoint import Counters
from services.learner.ranks import World


def save(folder: Path, step: int) -> None:
    """A checkpoint whose every number is its step."""
    tensors = {f"model/{n}": torch.full((64, 1024), float(step)) for n in range(8)}
    counters = Counters(step=step, updates=step, skips=0, rng=b"")
    checkpoint.save(folder, tensors, counters, World(), keep=1)


def loaded(folder: Path) -> int:
    """The step of the newest complete checkpoint, after comparing all of it."""
    path = checkpoint.newest(folder)
    assert path is not None
    step = checkpoint.read_counters(path).step
    tensors = {f"model/{n}": torch.zeros(64, 1024) for n in range(8)}
    checkpoint.load(path, tensors, World())
    assert all(bool((tensor == step).all()) for tensor in tensors.values())
    return step


def main(folder: Path, times: int, seed: int) -> list[int]:
    """Save, then begin `times` further saves: of five in a row, four are killed at random moments."""
    torch.set_num_threads(1)
    save(folder, 0)
    start = time.monotonic()
    save(folder, 0)
    seconds, dice, found = time.monotonic() - start, random.Random(seed), []
    for step in range(1, times + 1):
        child = os.fork()
        if child == 0:
            save(folder, step)
            os._exit(0)
        if step % 5:
            time.sleep(dice.uniform(0.0, 1.2 * seconds))
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.append(loaded(folder))
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
