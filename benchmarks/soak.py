"""A nominal run for as long as is asked: do memory, file handles, threads and disk stay flat in every service?

    dapo bench soak [--minutes 60] [--seed 1] [--json]

All services with the scripted engine, no faults. Every five seconds the resident memory, file handles and threads of
every service and the disk of the run folder are read; after a tenth of the time, the warm-up, a straight line is laid
through each by least squares: `per_hour` is its slope.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.chaos.processes import NAMES, Run, resident_mb
from tests.chaos.setting import prepare
from tests.chaos.storm import until_step

EVERY_S = 5.0
FASTER = (
    "rollout.scripted={seconds=0.02, max_words=2}", "rollout.max_groups=32", "run.groups_per_batch=32",
    "run.group_size=2", "learner.record_batches=false", "learner.checkpoint_every=20",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Watch a nominal run for growth.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the object on one line")
    arguments = parser.parse_args()
    report = asyncio.run(soak(60 * arguments.minutes, arguments.seed))
    print(json.dumps(report, indent=None if arguments.json else 2))
    return 0


async def soak(seconds: float, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dapo-soak-") as name:
        folder = Path(name)
        (folder / "clock").write_bytes(bytes(8))
        run = Run(prepare(folder, seed=seed, proxied=False, lies=False), clock=folder / "clock")
        series: defaultdict[str, list[float]] = defaultdict(list)
        try:
            await run.start(*FASTER)
            await until_step(run, 2)
            start, first = time.monotonic(), run.steps
            while time.monotonic() - start < seconds and not run.ended:
                series["seconds"].append(time.monotonic() - start)
                for key, value in reading(run).items():
                    series[key].append(value)
                await asyncio.sleep(EVERY_S)
            steps, wall_s = run.steps - first, time.monotonic() - start
        finally:
            await run.kill()
    return {"seconds": round(wall_s), "groups_per_second": 32 * steps / wall_s, "growth": slopes(series)}


def reading(run: Run) -> dict[str, float]:
    """What every service and the disk hold now."""
    found = {}
    for name in NAMES:
        for pid in run.pids(name):
            entry = Path(f"/proc/{pid}")
            found[f"{name} MiB"] = resident_mb(pid)
            found[f"{name} handles"] = float(len(list((entry / "fd").iterdir())))
            found[f"{name} threads"] = float(len(list((entry / "task").iterdir())))
    for part in ("broker", "broker.db", "weights", "checkpoints", "history", "logs"):
        found[f"disk {part} MiB"] = size_mb(run.setting.run / part)
    return found


def size_mb(path: Path) -> float:
    """Of a file, or of all files in a folder; what goes meanwhile counts as nothing."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files if each.exists()) / 2**20


def slopes(series: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """By what is measured: its first and last value after the warm-up, and its slope."""
    seconds = np.array(series.pop("seconds"))
    found = {}
    for key, values in sorted(series.items()):
        late = np.flatnonzero(seconds[: len(values)] >= seconds[-1] / 10)
        y = np.array(values)[late]
        slope = float(np.polyfit(seconds[late], y, 1)[0]) * 3600 if len(late) > 2 else float("nan")
        found[key] = {"first": round(y[0], 2), "last": round(y[-1], 2), "per_hour": round(slope, 2)}
    return found


if __name__ == "__main__":
    sys.exit(main())
