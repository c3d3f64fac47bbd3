"""`dapo data check FILE`: what a run would make of a data file, row by row, before any GPU works.

Exit status 0: every row can be used, or is a copy of one that can; 1: a row would be refused or left out because
another contradicts it, or there is none; 2: the file cannot be read. Not covered: whether a prompt fits the model; that
takes its tokenizer, and the rollout decides it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.messages import VERIFIERS
from services.filter.dataset import Dataset, load

SHOWN = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo data check", description="Check a data file.")
    parser.add_argument("file", type=Path, help="JSONL or Parquet")
    parser.add_argument("--verifier", default="", choices=("", *VERIFIERS), help="verifier of rows that name none")
    parser.add_argument("--all", action="store_true", help=f"print every bad row, not only the first {SHOWN}")
    arguments = parser.parse_args(argv)
    try:
        data = load(arguments.file, verifier=arguments.verifier)
    except UserError as error:
        print(f"dapo data check: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(table(data, shown=data.num_rows if arguments.all else SHOWN))
    return 1 if data.refusals or data.conflicts or not data.rows else 0


def table(data: Dataset, *, shown: int) -> str:
    """Counts, then the rows that would be left out, each with its number and reason."""
    lines = [
        f"{data.path}",
        f"rows        {data.num_rows}",
        f"unique      {len(data.rows)}   that a run would use",
        f"duplicates  {len(data.duplicates)}   same prompt and answer as an earlier row; left out",
        f"conflicts   {len(data.conflicts)}   same prompt, different answers; all left out",
        f"refused     {len(data.refusals)}",
    ]
    problems = [(r.number, r.reason) for r in data.refusals]
    problems += [(number, "the same prompt has another answer in another row") for number in data.conflicts]
    lines += [f"row {number}: {reason}" for number, reason in sorted(problems)[:shown]]
    if len(problems) > shown:
        lines.append(f"... and {len(problems) - shown} more; --all prints them")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
