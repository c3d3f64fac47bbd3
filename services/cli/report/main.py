"""`dapo report RUN [OTHER]`: draw a run, or two side by side, as one HTML file; `--trace`: as a trace for Perfetto.

The page loads nothing: it can be mailed, archived and read without a network. A run may still be going on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli.report.record import Record, read_record

REPORT, TRACE = "report.html", "trace.json"


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
    parser.add_argument("--out", type=Path, help=f"file to write (default: RUN/{REPORT}, or RUN/{TRACE})")
    return parser.parse_args(argv)


def _write(arguments: argparse.Namespace) -> Path:
    from services.cli.report.page import page

    records: list[Record] = [read_record(folder) for folder in (arguments.run, arguments.other) if folder]
    path: Path = arguments.out or arguments.run / REPORT
    try:
        path.write_text(page(records), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another file with --out") from error
    return path


if __name__ == "__main__":
    sys.exit(main())
