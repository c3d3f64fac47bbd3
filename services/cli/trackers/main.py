"""`dapo track RUN --to wandb`: put a run, finished or going on, into TensorBoard or Weights & Biases.

A run whose configuration names them, [run] trackers = ["tensorboard"], is followed by `dapo run` itself.
"""

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from common import config
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli.folder import CONFIG, is_running
from services.cli.trackers.tracker import KINDS, check
from services.cli.trackers.tracking import EVERY_S, follow


def main(argv: Sequence[str] | None = None) -> int:
    """Until the run has ended, or at once if it has; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo track", description="Put a run into TensorBoard or W&B.")
    parser.add_argument("run", type=Path, help="run folder, for instance runs/demo")
    parser.add_argument("--to", action="append", choices=sorted(KINDS), required=True, help="may be given twice")
    arguments = parser.parse_args(argv)
    try:
        if not (arguments.run / CONFIG).exists():
            raise UserError(f"{arguments.run} is not a run folder ({CONFIG} is missing)")
        check(arguments.to)
        tables = config.read(arguments.run / CONFIG).tables
    except UserError as error:
        print(f"dapo track: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    ended = threading.Event()
    threading.Thread(target=_watch, args=(arguments.run, ended), daemon=True).start()
    follow(arguments.to, arguments.run, tables, ended)
    return 0


def _watch(run: Path, ended: threading.Event) -> None:
    while is_running(run):
        time.sleep(EVERY_S)
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
