"""`dapo run CONFIG`: all services of a configuration on this machine, supervised, until done.

    configuration -> every section checked -> model, data, ports checked -> run folder -> supervisor + live view

Exit status: 0 done, 1 the run failed or a service is in a crash loop, 2 a mistake of the user, 130 stopped by Ctrl-C.
"""

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from common import config
from common.config import RunConfig, Tree
from common.disk import full_message, is_full
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.history import History
from services.cli import folder, gpus, inputs, ports
from services.cli.board import Board, Outcome
from services.cli.guard import guarded
from services.cli.live import Live
from services.cli.processes import Sections, endpoints, metrics_endpoints, read_sections, specs
from services.cli.supervisor import Supervisor
from services.cli.trackers import tracker
from services.cli.trackers.tracking import Tracking
from services.cli.watch import run_ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run to the end; returns the exit status."""
    arguments = _arguments(argv)
    try:
        tree = config.read(arguments.config, arguments.overrides)
        outcome = run(tree, resume=arguments.resume, fresh=arguments.fresh)
    except UserError as error:
        outcome = Outcome(status=USER_ERROR_EXIT_STATUS, message=str(error))
    except OSError as error:
        if not is_full(error):
            raise
        outcome = Outcome(status=USER_ERROR_EXIT_STATUS, message=full_message(Path(error.filename or ".").absolute()))
    if outcome.message:
        print(f"dapo run: {outcome.message}", file=sys.stderr)
    return outcome.status


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dapo run", description="Run all services on this machine until done.")
    parser.add_argument("config", help="TOML file of the run")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values that replace the file's")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--resume", action="store_true", help="go on with the run in the run folder")
    mode.add_argument("--fresh", action="store_true", help="delete the run folder first")
    return parser.parse_intermixed_args(argv)


def run(tree: Tree, *, resume: bool = False, fresh: bool = False) -> Outcome:
    """Check everything, then supervise; raises `UserError` for a mistake found before anything is started."""
    sections = read_sections(tree)
    settings: RunConfig = sections["run"]
    inputs.prepare(settings, sections["filter"], Console())
    inputs.check_model(settings)
    inputs.check_compression(sections["rollout"], sections["learner"])
    devices = gpus.assigned(gpus.visible(os.environ), sections)
    inputs.check_data(sections["filter"], settings)
    tracker.check(settings.trackers)
    with folder.claimed(settings.path):
        ports.check(endpoints(sections))
        folder.prepare(settings.path, sections, resume=resume, fresh=fresh)
        return _supervise(sections, devices, resumed=resume)


def _supervise(sections: Sections, devices: Mapping[str, str], *, resumed: bool) -> Outcome:
    settings: RunConfig = sections["run"]
    mark, board = uuid.uuid4().hex, Board()
    (settings.path / "logs").mkdir(exist_ok=True)
    history = History(settings.path / "history", "supervisor-0")
    supervisor = Supervisor(
        specs=specs(sections, run_folder=settings.path, mark=mark, environment=os.environ, gpus=devices),
        steps=settings.steps,
        history=history,
        board=board,
    )
    live = Live(run=settings, endpoints=metrics_endpoints(sections), board=board)
    tracking = Tracking(settings.trackers, settings.path, config.resolved(sections), board)
    try:
        with guarded(mark), live, tracking:
            return asyncio.run(supervisor.run(run_ended(settings, board, resumed=resumed)))
    finally:
        history.close()


if __name__ == "__main__":
    sys.exit(main())
