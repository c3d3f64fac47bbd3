"""`dapo data check DATA ...`: what a run would make of its data, row by row, before any GPU works.

    DATA   data sets as [filter] data names them, or one run configuration (.toml): then all of its settings count

Exit status 0: every row can be used, or is a copy of one that can; 1: a row would be refused or left out because
another contradicts it or because it is too long, or there is none; 2: the data cannot be read.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.messages import VERIFIERS
from services.filter.config import FilterConfig
from services.filter.dataset import Dataset, dressed, load
from services.filter.fitting import Fitted, counter, fitted

SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One data set and its lengths."""

    data: Dataset
    fit: Fitted | None
    """None: nobody counted."""

    @property
    def problems(self) -> list[tuple[int, str]]:
        """(row number, reason) of every row that is left out and is no copy."""
        found = [(refusal.number, refusal.reason) for refusal in self.data.refusals]
        found += [(n, "the same prompt has another answer in another row") for n in self.data.found.conflicts]
        lengths: Mapping[int, int] = self.fit.too_long if self.fit else {}
        found += [(number, f"it has {tokens} tokens after the chat template") for number, tokens in lengths.items()]
        return sorted(found)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        run, settings = _settings(arguments)
        checked = check(settings, run)
    except UserError as error:
        print(f"dapo data check: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    for one in checked:
        print(table(one, shown=len(one.problems) if arguments.all else SHOWN))
    return 1 if any(one.problems for one in checked) or not any(one.data.found.rows for one in checked) else 0


def check(settings: FilterConfig, run: RunConfig | None) -> list[Checked]:
    """Every set of a configuration, the held-out one last; without `run` nobody counts tokens."""
    sets = load(settings.sets, judging=settings.judging, category=settings.category)
    sets += load([settings.eval_data] if settings.eval_data else [], judging=settings.judging)
    count = counter(run, settings) if run is not None else None
    if run is None or count is None:
        return [Checked(data=data, fit=None) for data in sets]
    fits = [
        fitted(
            data.found.rows, lambda row: dressed(row, settings), count=count, limit=run.max_prompt_tokens,
            policy=settings.on_long_prompt,
        )
        for data in sets
    ]  # fmt: skip
    return [Checked(data=data, fit=fit) for data, fit in zip(sets, fits, strict=True)]


def table(checked: Checked, *, shown: int) -> str:
    """Counts, then the rows that would be left out, each with its number and reason."""
    data, found, fit = checked.data, checked.data.found, checked.fit
    lines = [
        f"{data.source.text}",
        f"rows        {data.num_rows}",
        f"unique      {len(fit.rows) if fit else len(found.rows)}   that a run would use",
        f"duplicates  {len(found.duplicates)}   same prompt and answer as an earlier row; left out",
        f"near        {len(found.near)}   the same but for spaces; left out",
        f"conflicts   {len(found.conflicts)}   same prompt, different answers; all left out",
        f"refused     {len(data.refusals)}",
    ]
    if fit is not None:
        lines.append(f"too long    {len(fit.too_long)}   left out; {len(fit.shortened)} shortened")
    problems = checked.problems
    lines += [f"row {number}: {reason}" for number, reason in problems[:shown]]
    if len(problems) > shown:
        lines.append(f"... and {len(problems) - shown} more; --all prints them")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dapo data check", description="Check the data of a run.")
    parser.add_argument("data", nargs="+", help="data sets as [filter] data names them, or one configuration (.toml)")
    parser.add_argument("--verifier", default="", choices=("", *VERIFIERS), help="verifier of rows that name none")
    parser.add_argument("--model", default="", help="count tokens with the tokenizer of this model")
    parser.add_argument("--max-prompt-tokens", type=int, default=512, help="longest prompt that fits (with --model)")
    parser.add_argument("--all", action="store_true", help=f"print every bad row, not only the first {SHOWN}")
    return parser


def _settings(arguments: argparse.Namespace) -> tuple[RunConfig | None, FilterConfig]:
    """Those of a configuration file, or of the options."""
    names: list[str] = arguments.data
    if names[0].endswith(".toml"):
        tree = config.read(names[0], names[1:])
        return config.section(tree, "run", RunConfig), config.section(tree, "filter", FilterConfig)
    settings = FilterConfig(data=tuple(names), verifier=arguments.verifier, on_long_prompt="fail")
    if not arguments.model:
        return None, settings
    return RunConfig(
        name="check", model=arguments.model, max_prompt_tokens=arguments.max_prompt_tokens, max_response_tokens=1
    ), settings  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
