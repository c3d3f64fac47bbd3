"""`dapo data check FILE`: what a run would make of a data file, row by row, before any GPU works."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.filter.dataset import Dataset, load

SHOWN = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 0: every row can be used, 1: a row would be refused, 2: the file cannot be read."""
    parser = argparse.ArgumentParser(prog="dapo data check", description="Check a data file.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--verifier", default="math", help="verifier of rows that name none")
    arguments = parser.parse_args(argv)
    try:
        data = load(arguments.file, verifier=arguments.verifier)
    except UserError as error:
        print(f"dapo data check: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(table(data))
    return 1 if data.refusals or data.conflicts else 0


def table(data: Dataset) -> str:
    """Counts, then the rows that would be left out, each with its number and reason."""
    total = len(data.rows) + len(data.refusals) + len(data.duplicates) + len(data.conflicts)
    lines = [
        f"rows        {total}",
        f"usable      {len(data.rows)}",
        f"duplicates  {len(data.duplicates)}   same prompt and answer as an earlier row; left out",
        f"conflicts   {len(data.conflicts)}   same prompt, different answers; all left out",
        f"refused     {len(data.refusals)}",
    ]
    problems = [(r.number, r.reason) for r in data.refusals]
    problems += [(row.number, "the same prompt has another answer in another row") for row in data.conflicts]
    lines += [f"row {number}: {reason}" for number, reason in sorted(problems)[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"... and {len(problems) - SHOWN} more")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
