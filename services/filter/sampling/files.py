"""The sampler's files of prompts in the run folder: complete or absent, and only the one in use is kept."""

import os
from pathlib import Path

from common.folders import fsync

FOLDER = "sampling"


def read(run_folder: Path, name: str) -> bytes:
    """The content of a file; empty if there is no such file, which the reader of the content will notice."""
    path = run_folder / FOLDER / name
    return path.read_bytes() if name and path.is_file() else b""


def write(run_folder: Path, name: str, content: bytes) -> None:
    """Put a file on disk before the register names it."""
    folder = run_folder / FOLDER
    folder.mkdir(exist_ok=True)
    draft = folder / f"{name}.{os.getpid()}.tmp"
    draft.write_bytes(content)
    fsync(draft)
    draft.replace(folder / name)
    fsync(folder)


def keep_only(run_folder: Path, name: str) -> None:
    """Delete the files that no register names any more."""
    for path in (run_folder / FOLDER).glob("prompts-*"):
        if path.name != name:
            path.unlink(missing_ok=True)
