"""Folders on disk that are complete or absent, whenever the writer is killed and even if the power fails.

with new_folder(final) as partial:  write into `partial`, fsync its files  ->  fsync, rename to `final`, fsync
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial-"


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder beside `final` that takes its name, and its place, at the end of the block.

    One writer at a time: what an earlier one left unfinished in the parent folder is removed. So is what this one
    wrote before the disk was full: nobody could use it, and others may need the room.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    for left in final.parent.glob(f"{PARTIAL}*"):
        shutil.rmtree(left, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=final.parent))
    try:
        yield partial
        fsync(partial)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    fsync(final.parent)


def fsync(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
