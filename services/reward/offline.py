"""`dapo verify FILE.jsonl`: judge a file of outputs, one verdict a line in the order of the file, a summary on stderr.

{"id", "output", "gold", "verifier"?, "metadata"?}  ->  {"id", "verdict", "score", "reason", "seconds"}

    --verifier NAME    judges all rows; else each names its own, or `math`
    --config FILE      the [reward] section of a run: limits, [reward.judge], [reward.http], functions
    --explain ID       one row: what of it answers, the normal forms, the verdict
"""

import argparse
import asyncio
import dataclasses
import json
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np

from common import config as configuration
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.messages import PYTHON, Verdict
from services.reward.config import RewardConfig
from services.reward.explain import steps
from services.reward.f1 import MacroF1
from services.reward.judges import open_judges
from services.reward.rows import Answer, read
from services.reward.scoring import tried

IN_WORK = 256
"""Rows that are judged, or were and wait for one before them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the file; 0 when every row has a verdict, 2 for a mistake of the user."""
    arguments = _parser().parse_args(argv)
    try:
        answers, config = read(arguments.file, arguments.verifier), _config(arguments)
        if arguments.explain is not None:
            return asyncio.run(_explain(answers, config, arguments.explain))
        verdicts = asyncio.run(_print_all(answers, config))
    except UserError as error:
        print(f"dapo verify: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(summary(answers, verdicts), file=sys.stderr)
    return 0


async def judged(answers: Sequence[Answer], config: RewardConfig) -> AsyncIterator[Verdict]:
    """The verdicts in the order of the answers, each as soon as it and those before it are known."""
    async with open_judges(config, queue_limit=IN_WORK) as judges:
        in_work: deque[asyncio.Task[Verdict]] = deque()
        try:
            for answer in answers:
                work = tried(judges, answer.output, answer.task, answer.question, retries=config.retries)
                in_work.append(asyncio.create_task(work))
                if len(in_work) >= IN_WORK:
                    yield await in_work.popleft()
            while in_work:
                yield await in_work.popleft()
        finally:
            for task in in_work:
                task.cancel()
            await asyncio.gather(*in_work, return_exceptions=True)


def summary(answers: Sequence[Answer], verdicts: Sequence[Verdict]) -> str:
    """Counts, time-outs, how long a verification took, and what was wrong with those that failed."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    timeouts = sum(verdict.reason.startswith("timeout") for verdict in verdicts)
    p50, p99 = np.percentile([verdict.seconds for verdict in verdicts] or [0.0], [50, 99])
    lines = [
        f"{len(verdicts)} verified: {counts['correct']} correct, {counts['wrong']} wrong, {counts['error']} errors, "
        f"{timeouts} time-outs; seconds p50 {p50:.4f}, p99 {p99:.4f}"
    ]
    if any(0 < verdict.score < 1 for verdict in verdicts):
        judged_scores = [verdict.score for verdict in verdicts if verdict.verdict != "error"]
        lines.append(f"mean score {np.mean(judged_scores):.4f}")
    f1 = MacroF1(window=None)
    if any([f1.add(answer.task, verdict) for answer, verdict in zip(answers, verdicts, strict=True)]):
        lines.append(f"macro F1 of the classifications {f1.value:.4f}")
    causes = Counter(verdict.reason.partition(":")[0] for verdict in verdicts if verdict.verdict == "error")
    lines += [f"errors: {cause} {number}" for cause, number in causes.most_common()]
    return "\n".join(lines)


async def _print_all(answers: Sequence[Answer], config: RewardConfig) -> list[Verdict]:
    from rich.console import Console
    from rich.progress import Progress

    verdicts: list[Verdict] = []
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal or sys.stdout.isatty()) as progress:
        bar = progress.add_task("verifying", total=len(answers))
        async for verdict in judged(answers, config):
            print(json.dumps(_line(answers[len(verdicts)], verdict)), flush=True)
            verdicts.append(verdict)
            progress.advance(bar)
    return verdicts


async def _explain(answers: Sequence[Answer], config: RewardConfig, wanted: str) -> int:
    found = [answer for answer in answers if str(answer.id) == wanted]
    if not found:
        raise UserError(f"no row has the id {wanted}; the first has {answers[0].id if answers else 'none'}")
    answer = found[0]
    for what, text in steps(answer.output, answer.task):
        print(f"{what}: {text}")
    async for verdict in judged([answer], config):
        print(f"verdict: {verdict.verdict} ({verdict.reason}), score {verdict.score:g}, {verdict.seconds:.4f} s")
    return 0


def _line(answer: Answer, verdict: Verdict) -> dict[str, object]:
    fields = {"id": answer.id, "verdict": verdict.verdict, "score": verdict.score, "reason": verdict.reason}
    return fields | {"seconds": round(verdict.seconds, 6)}


def _config(arguments: argparse.Namespace) -> RewardConfig:
    tree = configuration.read(arguments.config) if arguments.config else None
    config = configuration.section(tree, "reward", RewardConfig) if tree else RewardConfig()
    given = {"workers": arguments.workers, "timeout_s": arguments.timeout_s}
    own = (arguments.verifier,) if arguments.verifier.startswith(PYTHON) else ()
    try:
        return dataclasses.replace(
            config, functions=(*config.functions, *own), **{k: v for k, v in given.items() if v is not None}
        )
    except ValueError as error:
        raise UserError(f"{error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dapo verify", description="Judge a JSONL file of answers.")
    parser.add_argument("file", type=Path, help='rows of {"id", "output", "gold"}')
    parser.add_argument("--verifier", default="", metavar="NAME", help="judges all rows (default: each names its own)")
    parser.add_argument("--config", metavar="FILE", help="configuration of a run, for its [reward] section")
    parser.add_argument("--workers", type=int, help="verifier processes (default 2)")
    parser.add_argument("--timeout-s", type=float, help="wall-clock limit of one verification (default 5)")
    parser.add_argument("--explain", metavar="ID", help="show how one row is judged")
    return parser
