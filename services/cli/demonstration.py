"""`dapo demo`: make a tiny model and its problems, train it here with the whole pipeline, end with a verdict.

    prepare -> run (fresh) -> audit -> table, picture, verdict

Exit status 0 only if the held-out accuracy reached the target and the audit passed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from common import config
from common.config import RunConfig, Tree
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli import plot, summary
from services.cli.audit.__main__ import audit
from services.cli.board import Outcome
from services.cli.run import run

CONFIG = Path(__file__).parents[2] / "configs" / "demo.toml"
TARGET = 0.85
"""Accuracy on the held-out problems that the demo must reach."""


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare, train, judge; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="dapo demo", description="Train a tiny model here, from nothing to a verdict."
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompt order and of every sample (default 0)")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="values that replace configs/demo.toml's"
    )
    arguments = parser.parse_intermixed_args(argv)
    start = time.monotonic()
    try:
        tree = _tree(arguments.seed, arguments.overrides)
        outcome = run(tree, fresh=True)
    except UserError as error:
        outcome = Outcome(status=USER_ERROR_EXIT_STATUS, message=str(error))
    if outcome.status:
        print(f"dapo demo: {outcome.message}", file=sys.stderr)
        return outcome.status
    return conclude(config.section(tree, "run", RunConfig).path, wall_s=time.monotonic() - start, console=Console())


def _tree(seed: int, overrides: Sequence[str]) -> Tree:
    name = f"demo-seed{seed}" if seed else "demo"
    return config.read(CONFIG, [f"run.name={name}", f"run.seed={seed}", *overrides])


def conclude(folder: Path, *, wall_s: float, console: Console) -> int:
    """Table, picture and verdict of a finished run; returns the exit status."""
    report = audit(folder)
    result = summary.summarise(folder, report, wall_s=wall_s)
    picture = folder / "plot.png"
    plot.draw(result, picture, title=f"dapo demo, seed {result.run.seed}", target=TARGET)
    console.print(summary.table(result))
    reached = bool(result.evals) and result.evals[-1]["accuracy"] >= TARGET
    console.print(f"picture: {picture}", highlight=False, soft_wrap=True)
    console.print(_verdict(reached=reached, audited=report["ok"]), highlight=False, soft_wrap=True)
    return 0 if reached and report["ok"] else 1


def _verdict(*, reached: bool, audited: bool) -> str:
    target = f"held-out accuracy {'reached' if reached else 'did not reach'} the target of {TARGET:g}"
    check = "the audit passed" if audited else "the audit found violations (`dapo audit` lists them)"
    colour = "green" if reached and audited else "red"
    return f"[bold {colour}]{'PASSED' if reached and audited else 'FAILED'}[/]: {target}, {check}"


if __name__ == "__main__":
    sys.exit(main())
