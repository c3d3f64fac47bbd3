"""`dapo prepare CONFIG`: what `dapo run` does before it starts anything, for services that something else starts.

    configuration -> every section checked -> model, data -> run folder, with the resolved configuration in it -> link

The services are then started on `LINK/config.toml`. A run folder with progress is gone on with, if its configuration
allows that. Exit status: 0 ready, 2 a mistake of the user.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from common import config
from common.config import RunConfig, Tree
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from services.cli import folder, inputs
from services.cli.processes import read_sections


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare a run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo prepare", description="Make a run ready for services started by hand.")
    parser.add_argument("config", help="TOML file of the run")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values that replace the file's")
    parser.add_argument("--link", type=Path, help="symbolic link to the run folder that is made or moved")
    arguments = parser.parse_intermixed_args(argv)
    try:
        path = prepare(config.read(arguments.config, arguments.overrides))
        if arguments.link is not None:
            point(arguments.link, path)
    except UserError as error:
        print(f"dapo prepare: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(f"run folder {path} is ready")
    return 0


def prepare(tree: Tree) -> Path:
    """Check everything, make the run folder; raises `UserError`."""
    sections = read_sections(tree)
    run: RunConfig = sections["run"]
    inputs.prepare(run, sections["filter"], Console())
    inputs.check_model(run)
    inputs.check_data(sections["filter"], run)
    with folder.claimed(run.path):
        folder.prepare(run.path, sections, resume=folder.has_progress(run.path), fresh=False)
    return run.path


def point(link: Path, target: Path) -> None:
    """Make or move a symbolic link, at once; raises `UserError` if something else has its name."""
    if link.exists() and not link.is_symlink():
        raise UserError(f"{link} exists and is no symbolic link: remove it, or choose another --link")
    link.parent.mkdir(parents=True, exist_ok=True)
    partial = link.with_name(f".{link.name}.partial")
    partial.unlink(missing_ok=True)
    partial.symlink_to(os.path.relpath(target, link.parent))
    partial.replace(link)


if __name__ == "__main__":
    sys.exit(main())
