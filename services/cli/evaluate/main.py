"""`dapo eval CONFIG|RUN`: avg@k and pass@k on held-out rows, by the rollout engine and the verifiers of a run.

    weights + held-out rows -> broker, rollout, reward (processes of their own) -> tally -> table or JSON

A run is not touched: the evaluation has a folder and ports of its own, and may go on beside it.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.history import History
from common.messages import Policy
from services.cli import inputs, progress
from services.cli.board import Board, Outcome
from services.cli.evaluate import subject
from services.cli.evaluate.asking import Asking, share
from services.cli.evaluate.figures import emptiness, figures, table
from services.cli.folder import CONFIG
from services.cli.guard import guarded
from services.cli.processes import read_sections, specs
from services.cli.supervisor import Supervisor
from services.filter.config import FilterConfig
from services.filter.judging import ACCURACY
from services.filter.schema import Row

ROLES = ("broker", "rollout", "reward")
NAME = "eval"


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print; returns the exit status."""
    arguments = _arguments(argv)
    folder = subject.own_folder(arguments.target)
    try:
        outcome, found = _evaluate(arguments, folder, Console(stderr=True))
    except UserError as error:
        outcome, found = Outcome(status=USER_ERROR_EXIT_STATUS, message=str(error)), {}
    except KeyboardInterrupt:
        outcome, found = Outcome(status=130), {}
    if outcome.status == 0:
        print(json.dumps(found)) if arguments.json else Console().print(table(found))
    else:
        print(f"dapo eval: {_complaint(outcome, folder)}", file=sys.stderr)
    shutil.rmtree(folder / NAME / "weights" if outcome.status == 1 else folder, ignore_errors=True)
    return outcome.status


def _complaint(outcome: Outcome, folder: Path) -> str:
    if outcome.status > 128:
        return "stopped, nothing was measured"
    return f"{outcome.message}; logs are in {folder / NAME / 'logs'}" if outcome.status == 1 else outcome.message


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dapo eval", description="avg@k and pass@k on held-out rows.")
    parser.add_argument("target", type=Path, metavar="CONFIG|RUN", help="TOML file, or folder of a run")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values that replace the file's")
    parser.add_argument("--step", type=int, help="policy version of the run; default: the newest published")
    parser.add_argument("--samples", type=int, help="answers to each row; default: [filter] eval_samples")
    parser.add_argument("--temperature", type=float, help="default: 0 for one answer, else the run's")
    parser.add_argument("--data", help="rows to answer instead of the run's held-out ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_intermixed_args(argv)


def _evaluate(arguments: argparse.Namespace, folder: Path, console: Console) -> tuple[Outcome, dict[str, Any]]:
    sections = _sections(arguments, folder)
    run: RunConfig = sections["run"]
    inputs.prepare(run, sections["filter"], console)
    inputs.check_model(run)
    rows = _rows(sections["filter"], run)
    config.write(run.path / CONFIG, sections)
    policy = _policy(arguments, run)
    start = time.monotonic()
    with progress.shown(console) as report:
        asking = Asking(len(rows), sections["filter"], lambda tally: report("evaluating", share(tally)))
        outcome = _supervise(sections, asking, policy, rows)
    if outcome.status == 0 and (message := emptiness(asking.tally)):
        outcome = Outcome(status=1, message=message)
    return outcome, figures(run, sections["filter"], policy, asking.tally, seconds=time.monotonic() - start)


def _sections(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The configuration in a folder and on ports of its own, with what the command line says of the evaluation."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    own = [f"run.folder={json.dumps(str(folder))}", f"run.name={NAME}", f"run.broker=tcp://127.0.0.1:{port}"]
    own += ['broker.bind=""', *(f"{role}.metrics_port=-1" for role in ROLES)]
    asked = {"eval_samples": arguments.samples, "eval_temperature": arguments.temperature, "eval_data": arguments.data}
    own += [f"filter.{key}={json.dumps(value)}" for key, value in asked.items() if value is not None]
    sections = read_sections(subject.read_tree(arguments.target, [*arguments.overrides, *own]))
    (folder / NAME / "logs").mkdir(parents=True)
    return sections


def _rows(settings: FilterConfig, run: RunConfig) -> list[Row]:
    """The held-out rows; the training data is read only if they are held out of it."""
    from services.filter.dataset import training_rows

    if settings.eval_data:
        alone = replace(settings, data=settings.eval_data, eval_data="", category="data_source", metric=ACCURACY)
        return training_rows(replace(alone, eval_rows=0), run)[0]
    _, held_out = training_rows(settings, run)
    if not held_out:
        raise UserError("no held-out rows: give --data FILE, or set [filter] eval_data or eval_rows")
    return held_out


def _policy(arguments: argparse.Namespace, run: RunConfig) -> Policy:
    store = run.path / "weights"
    if arguments.target.is_dir():
        return subject.link(arguments.target, subject.published(arguments.target, arguments.step), store)
    if arguments.step is not None:
        raise UserError("--step needs a run folder: a configuration has only its starting model")
    return subject.write_start(run, store)


def _supervise(sections: Mapping[str, Any], asking: Asking, policy: Policy, rows: Sequence[Row]) -> Outcome:
    run: RunConfig = sections["run"]
    mark, board = uuid.uuid4().hex, Board()
    history = History(run.path / "history", "supervisor-0")
    wanted = [
        spec
        for spec in specs(sections, run_folder=run.path, mark=mark, environment=os.environ)
        if spec.name.partition("-")[0] in ROLES
    ]

    async def answered() -> Outcome:
        await asking.run(run, policy, rows)
        return Outcome(status=0)

    supervisor = Supervisor(specs=wanted, steps=0, history=history, board=board)
    try:
        with guarded(mark):
            return asyncio.run(supervisor.run(answered()))
    finally:
        history.close()


if __name__ == "__main__":
    sys.exit(main())
