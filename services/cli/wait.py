"""`dapo wait CONFIG`: wait for the end of a run whose services something else started, then judge it.

    register `run` says done or failed -> audit -> table, verdict

Exit status: 0 done, target reached, audit passed; 1 one of these not; 2 a mistake of the user.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli import summary
from services.cli.audit.__main__ import audit
from services.cli.board import Board
from services.cli.watch import run_ended


def main(argv: Sequence[str] | None = None) -> int:
    """Wait, then judge; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo wait", description="Wait for the end of a run, then judge it.")
    parser.add_argument("config", help="TOML file of the run, as `dapo prepare` left it in the run folder")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values that replace the file's")
    parser.add_argument("--target", type=float, default=0.0, help="held-out accuracy that the run must reach")
    arguments = parser.parse_intermixed_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        run = config.section(config.read(arguments.config, arguments.overrides), "run", RunConfig)
        outcome = asyncio.run(run_ended(run, Board(), resumed=True))
    except UserError as error:
        print(f"dapo wait: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    if outcome.status:
        print(f"dapo wait: {outcome.message}", file=sys.stderr)
        return outcome.status
    return conclude(run, target=arguments.target)


def conclude(run: RunConfig, *, target: float) -> int:
    """Table and verdict; returns the exit status."""
    report = audit(run.path)
    result = summary.summarise(run.path, report, wall_s=age_s(run.path / "history"))
    accuracy = result.evals[-1]["accuracy"] if result.evals else None
    reached = not target or (accuracy is not None and accuracy >= target)
    console = Console(width=120)
    console.print(summary.table(result))
    aim = f"held-out accuracy {accuracy or 0:.3f} {'reached' if reached else 'did not reach'} {target:g}, "
    check = "the audit passed" if report["ok"] else "the audit found violations"
    verdict = "PASSED" if reached and report["ok"] else "FAILED"
    console.print(f"{verdict}: {aim if target else ''}{check}", highlight=False)
    return 0 if verdict == "PASSED" else 1


def age_s(history: Path) -> float:
    """Seconds since the first process of the run began, pauses included; a file's name says when its process did."""
    began = [int(path.stem.rpartition("-")[2]) for path in history.glob("*.msgpack")]
    return time.time() - min(began, default=time.time_ns()) / 1e9


if __name__ == "__main__":
    sys.exit(main())
