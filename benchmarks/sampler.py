"""Draw and update among a million prompts: the sum trees against a table of running sums that is built anew.

    python benchmarks/sampler.py [--prompts 1000000] [--json]

One round draws a prompt, learns what its group showed, and puts it back. The naive sampler is spared everything but
what it cannot do without: its weights are kept up to date one by one, only the running sums are built again after every
change. `register_bytes` is what the adaptive sampler adds to a hand-over, at most, between two files of prompts;
`file_seconds_per_round`, the cost of the files spread over the rounds, is part of its time.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from services.filter.sampling import files
from services.filter.sampling.adaptive import AdaptiveSampler
from services.filter.sampling.monitor import Outcome
from services.filter.sampling.posterior import Evidence, expected_keep, updated
from services.filter.sampling.stages import schedule
from services.filter.sampling.state import SamplerState

GROUP_SIZE = 16
CATEGORIES = 8


class Answered(Outcome):
    """A group of which `right` answers were right."""

    def __init__(self, right: int) -> None:
        q = right / GROUP_SIZE
        self.attempts, self.pass_rate, self.variance, self.length = GROUP_SIZE, q, q * (1 - q), 100.0
        self.successes = float(right)


class Adaptive:
    """The sampler of the filter, with the files that the filter would write."""

    def __init__(self, num_prompts: int, folder: Path) -> None:
        self._folder = folder
        self.state = SamplerState()
        self.sampler = AdaptiveSampler(
            self.state, categories=[f"category {n % CATEGORIES}" for n in range(num_prompts)], scores="signal",
            weights={}, schedule=schedule("auto", num_rows=num_prompts, steps=100_000), group_size=GROUP_SIZE, seed=0,
        )  # fmt: skip
        self.sampler.row(0)  # the first epoch's trees and order
        self.most_bytes, self.file_seconds = 0, 0.0

    def round(self, number: int, right: int) -> None:
        """Draw, learn, put back."""
        row = self.sampler.row(number)
        self.sampler._learn(row, Answered(right), version=number // 512)
        self.sampler.ended(self.sampler.id(number))
        if number % 100 == 0:
            self.most_bytes = max(self.most_bytes, len(msgspec.msgpack.encode(self.state)))
        start = time.perf_counter()
        if (file := self.sampler.file()) is not None:
            files.write(self._folder, *file)
            files.keep_only(self._folder, file[0])
            self.file_seconds += time.perf_counter() - start


class Naive:
    """Running sums over all prompts, built again for every draw."""

    def __init__(self, num_prompts: int) -> None:
        self._weights = np.full(num_prompts, expected_keep(0.5, 0.5, GROUP_SIZE))
        self._evidence: dict[int, Evidence] = {}

    def round(self, number: int, right: int) -> None:
        """Draw, learn, put back."""
        sums = np.cumsum(self._weights)
        row = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
        before = self._evidence.get(row, Evidence())
        evidence = updated(before, attempts=GROUP_SIZE, successes=right, version=number // 512, decay=0.99)
        self._evidence[row] = evidence
        self._weights[row] = expected_keep(*evidence.beta, GROUP_SIZE)


def seconds_per_round(play: Callable[[int, int], None], rounds: int) -> float:
    rng = random.Random(0)
    start = time.perf_counter()
    for number in range(1, rounds + 1):
        play(number, rng.randrange(GROUP_SIZE + 1))
    return (time.perf_counter() - start) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the adaptive prompt sampler.")
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    result = measure(arguments.prompts, arguments.rounds)
    lines = [f"{name:>24}  {value:.4g}" for name, value in result.items()]
    print(json.dumps(result) if arguments.json else "\n".join(lines))


def measure(prompts: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        adaptive = Adaptive(prompts, Path(folder))
        built = time.perf_counter() - start
        mine = seconds_per_round(adaptive.round, rounds)
        least = seconds_per_round(Adaptive(1000, Path(folder)).round, rounds)
    naive = seconds_per_round(Naive(prompts).round, min(rounds, 300))
    return {
        "prompts": prompts, "adaptive_seconds": mine, "naive_seconds": naive, "speedup": naive / mine,
        "seconds_at_1000_prompts": least, "file_seconds_per_round": adaptive.file_seconds / rounds,
        "build_seconds": built, "register_bytes": adaptive.most_bytes,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


if __name__ == "__main__":
    main()
