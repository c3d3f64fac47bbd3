"""A real run of all services under a storm of faults: what was lost (nothing), how fast it recovers, what it costs.

    dapo bench chaos [--minutes 5] [--seed 1] [--every 2 8] [--json]

Every 2 to 8 seconds a fault: a service is killed or stopped, the learner is killed while it saves a checkpoint, all is
killed at once, connections are cut, messages come late, slowly, twice, out of order, damaged or not at all, the wall
clock jumps, the disk is full; and the engine lies in 2 % of its groups (versions it never had, log-probabilities that
are no numbers, answers without tokens, aborted requests). Then the run is resumed to a planned end, audited, and its
recorded batches are trained again in one go: the weights of all versions must be the same, bit for bit. A quarter of
the time, at most two minutes, goes to a run without faults, for comparison. Exit status 0 if nothing was lost, trained
twice or too old, all weights are equal, and the run came to its end.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.chaos.storm import calm, storm


def main() -> int:
    parser = argparse.ArgumentParser(description="Storm a run of all services and judge it.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, nargs=2, default=(2.0, 8.0), metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="print the object on one line")
    arguments = parser.parse_args()
    report = asyncio.run(measured(arguments))
    print(json.dumps(report, indent=None if arguments.json else 2))
    return 0 if report["ok"] else 1


async def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    seconds = 60 * arguments.minutes
    report = await storm(seconds=seconds, seed=arguments.seed, between_s=tuple(arguments.every), log=sys.stderr)
    twin = await calm(seconds=min(120.0, seconds / 4), seed=arguments.seed)
    groups = report["groups"]
    return {
        "ok": report["finished"] and report["audit_ok"] and report["replay"]["equal"] and not report["unrecovered"]
        and groups["lost"] == groups["trained_twice"] == 0 and report["greatest_age"] <= report["max_staleness"],
        "seed": arguments.seed,
        **report,
        "twin": twin,
        "throughput_ratio": report["steps_per_second"] / twin["steps_per_second"],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
