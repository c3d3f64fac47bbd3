"""`dapo report RUN [OTHER]`: draw a run, or two side by side, as one HTML file; `--trace`: as a trace for Perfetto.

The page loads nothing: it can be mailed, archived and read without a network. A run may still be going on.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli.report.record import Record, read_record

REPORT, TRACE = "report.html", "trace.json"
TRACED_STEPS = 50
"""A trace of many groups is slow to open."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file and say where; returns the exit status."""
    arguments = _arguments(argv)
    try:
        path = _write(arguments)
    except UserError as error:
        print(f"dapo report: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(path)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dapo report", description="Draw a run, or two side by side, as one page.")
    parser.add_argument("run", type=Path, help="run folder, for instance runs/demo")
    parser.add_argument("other", type=Path, nargs="?", help="a second run to compare it with")
    parser.add_argument("--trace", action="store_true", help="write a trace of the stages instead, for ui.perfetto.dev")
    parser.add_argument("--steps", metavar="FIRST:LAST", help=f"of the trace (default: the last {TRACED_STEPS})")
    parser.add_argument("--out", type=Path, help=f"file to write (default: RUN/{REPORT}, or RUN/{TRACE})")
    return parser.parse_args(argv)


def _write(arguments: argparse.Namespace) -> Path:
    records = [read_record(folder) for folder in (arguments.run, arguments.other) if folder]
    path: Path = arguments.out or arguments.run / (TRACE if arguments.trace else REPORT)
    text = _trace(records, arguments.steps) if arguments.trace else _page(records)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another file with --out") from error
    return path


def _page(records: Sequence[Record]) -> str:
    from services.cli.report.page import page

    return page(records)


def _trace(records: Sequence[Record], steps: str | None) -> str:
    from services.cli.report.trace import trace

    if len(records) > 1:
        raise UserError("a trace is of one run: leave out the second folder")
    first, last = _steps(steps) if steps else _last_steps(records[0])
    return json.dumps(trace(records[0], first, last), separators=(",", ":"))


def _steps(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or int(first) > int(last):
        raise UserError(f"--steps {text} is not of the form FIRST:LAST, for instance --steps 100:120")
    return int(first), int(last)


def _last_steps(record: Record) -> tuple[int, int]:
    if not record.rows:
        raise UserError(f"{record.folder} has no step to trace yet")
    last = int(record.rows[-1]["step"])
    return max(0, last - TRACED_STEPS + 1), last


if __name__ == "__main__":
    sys.exit(main())
