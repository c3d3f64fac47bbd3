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
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.history import History
from common.messages import Policy, Sampling
from services.cli import inputs, progress
from services.cli.board import Board, Outcome
from services.cli.evaluate import subject
from services.cli.evaluate.asking import Asking
from services.cli.folder import CONFIG
from services.cli.guard import guarded
from services.cli.processes import read_sections, specs
from services.cli.supervisor import Supervisor
from services.filter.schema import Row
from services.filter.state import EvalTally

ROLES = ("broker", "rollout", "reward")


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print; returns the exit status."""
    arguments = _arguments(argv)
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="dapo-eval-"))
    try:
        outcome, figures = _evaluate(arguments, folder, console)
    except UserError as error:
        outcome, figures = Outcome(status=USER_ERROR_EXIT_STATUS, message=str(error)), {}
    if outcome.status:
        print(f"dapo eval: {outcome.message}; logs are in {folder}" if outcome.status == 1 else
              f"dapo eval: {outcome.message}", file=sys.stderr)  # fmt: skip
    if outcome.status != 1:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome.status == 0:
        print(json.dumps(figures)) if arguments.json else Console().print(table(figures))
    return outcome.status


def table(figures: Mapping[str, Any]) -> Table:
    """The figures for a person."""
    title = f"{figures['model']} step {figures['step']}: {figures['rows']} rows, {figures['samples']} answers each"
    view = Table("measure", "value", title=title, title_justify="left")
    for key in [key for key in figures if key.startswith(("avg@", "pass@"))]:
        view.add_row(key, f"{figures[key]:.4f}")
    view.add_row("temperature", str(figures["temperature"]))
    view.add_row("answers without a verdict, left out", str(figures["errors"]))
    view.add_row("rows that were not answered", str(figures["dead"]))
    view.add_row("seconds", f"{figures['seconds']:.0f}")
    return view


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
    rows = _rows(sections)
    config.write(run.path / CONFIG, sections)
    policy = _policy(arguments, run)
    sampling = Sampling(
        n=sections["filter"].eval_samples,
        temperature=sections["filter"].greedy_or(run.temperature),
        max_tokens=run.max_response_tokens,
        seed=run.seed,
    )
    start = time.monotonic()
    with progress.shown(console) as report:
        asking = Asking(len(rows), lambda tally: report("evaluating", share(tally)))
        outcome = _supervise(sections, asking, policy, rows, sampling)
    figures = {
        "model": run.model, "step": policy.version, "rows": len(rows), "samples": sampling.n,
        "temperature": sampling.temperature, **measures(asking.tally, sampling.n),
        "seconds": time.monotonic() - start, "digest": policy.digest,
    }  # fmt: skip
    return outcome, figures


def measures(tally: EvalTally, samples: int) -> dict[str, float]:
    """avg@k and pass@k by name, and what they leave out."""
    passes = {f"pass@{k}": rate for k, rate in tally.pass_rates.items()}
    return {f"avg@{samples}": tally.accuracy, **passes, "errors": tally.errors, "dead": len(tally.dead)}


def share(tally: EvalTally) -> float:
    """How much of an evaluation is done."""
    return (tally.answered + len(tally.dead)) / tally.rows


def _sections(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The configuration in a folder and on ports of its own, with what the command line says of the evaluation."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    own = [f"run.folder={json.dumps(str(folder))}", "run.name=eval", f"run.broker=tcp://127.0.0.1:{port}"]
    own += [f"{role}.metrics_port=-1" for role in ROLES]
    asked = {"eval_samples": arguments.samples, "eval_temperature": arguments.temperature, "eval_data": arguments.data}
    own += [f"filter.{key}={json.dumps(value)}" for key, value in asked.items() if value is not None]
    sections = read_sections(subject.read_tree(arguments.target, [*arguments.overrides, *own]))
    (folder / "eval" / "logs").mkdir(parents=True)
    return sections


def _rows(sections: Mapping[str, Any]) -> list[Row]:
    from services.filter.dataset import training_rows

    _, held_out = training_rows(sections["filter"], sections["run"])
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


def _supervise(
    sections: Mapping[str, Any], asking: Asking, policy: Policy, rows: Sequence[Row], sampling: Sampling
) -> Outcome:
    run: RunConfig = sections["run"]
    mark, board = uuid.uuid4().hex, Board()
    history = History(run.path / "history", "supervisor-0")
    wanted = [
        spec
        for spec in specs(sections, run_folder=run.path, mark=mark, environment=os.environ)
        if spec.name.partition("-")[0] in ROLES
    ]

    async def answered() -> Outcome:
        await asking.run(run, policy, rows, sampling)
        return Outcome(status=0)

    supervisor = Supervisor(specs=wanted, steps=0, history=history, board=board)
    try:
        with guarded(mark):
            return asyncio.run(supervisor.run(answered()))
    finally:
        history.close()


if __name__ == "__main__":
    sys.exit(main())
