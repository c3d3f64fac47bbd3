"""`dapo replay RUN`: train the recorded batches of a run once more, in one go, and compare every version's digest.

    RUN/batches/*.batch -> the same learner, without queues, kills and resumes -> digest of version v == as published?

On a CPU in float32 a run whose learner was killed at any moments comes out the same, bit for bit. Needs a run with
`learner.record_batches = true`. Exit status 0 if all are equal, 1 if not, 2 without recorded batches.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from common import codec, config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.learner import recording
from services.learner.config import LearnerConfig

if TYPE_CHECKING:
    from services.learner.learner import Learner


def main(argv: Sequence[str] | None = None) -> int:
    """Replay one run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo replay", description="Train a run's recorded batches again, compare.")
    parser.add_argument("run", type=Path, help="run folder, for instance runs/demo")
    arguments = parser.parse_args(argv)
    try:
        report = replay(arguments.run)
    except UserError as error:
        print(f"dapo replay: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(json.dumps(report, indent=2))
    return 0 if report["equal"] else 1


def replay(run_folder: Path) -> dict[str, Any]:
    """Versions compared, and those that differ."""
    steps = recording.steps(run_folder / recording.FOLDER)
    if not steps or steps != list(range(len(steps))):
        raise UserError(f"{run_folder} has no complete record of batches: run with learner.record_batches=true")
    tree = config.read(run_folder / "config.toml")
    run, own = config.section(tree, "run", RunConfig), config.section(tree, "learner", LearnerConfig)
    published = digests(run_folder / "history")
    with tempfile.TemporaryDirectory(prefix="dapo-replay-") as folder:
        found = dict(_train_again(replace(run, folder=folder), replace(own, keep_versions=1), run_folder, steps))
    compared = sorted(published.keys() & found.keys())
    differing = [version for version in compared if published[version] != {found[version]}]
    return {
        "batches": len(steps), "versions_compared": len(compared), "differing": differing,
        "equal": bool(compared) and not differing,
    }  # fmt: skip


def digests(history: Path) -> dict[int, set[str]]:
    """By version: the digests under which the run's learners published it."""
    found: dict[int, set[str]] = {}
    for path in history.glob("learner-*.msgpack"):
        with path.open("rb") as file:
            for record in msgpack.Unpacker(file, strict_map_key=False):
                if record["event"] == "published":
                    found.setdefault(record["version"], set()).add(record["digest"])
    return found


def _train_again(run: RunConfig, own: LearnerConfig, source: Path, steps: Sequence[int]) -> Iterator[tuple[int, str]]:
    """(version, digest), from the starting policy on."""
    from services.learner.ranks import World
    from services.learner.start import start

    learner = start(run=run, config=own, history=None, world=World())
    yield 0, _published(learner)
    for step in steps:
        learner.train(*codec.decode_batch(recording.read(source / recording.FOLDER, step)))
        yield step + 1, _published(learner)


def _published(learner: "Learner") -> str:
    """The digest of the version that the learner is at."""
    policy = learner.publish()
    assert policy is not None  # there is one rank
    return policy.digest


if __name__ == "__main__":
    sys.exit(main())
