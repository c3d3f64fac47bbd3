"""What lies in cache/: it appears whole or not at all, and is made again when the code that makes it changes.

with made_anew(folder, sources) as partial: write into partial        is_current(folder, sources)
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RECIPE = "recipe.sha256"
"""File in a made folder: the digest of the sources that made it."""


def is_current(folder: Path, sources: Sequence[Path]) -> bool:
    """Whether `folder` was made by these sources as they are now."""
    try:
        return (folder / RECIPE).read_text() == _digest(sources)
    except FileNotFoundError:
        return False


@contextmanager
def made_anew(folder: Path, sources: Sequence[Path]) -> Iterator[Path]:
    """A folder to write into; it takes the place of `folder` at the end, or vanishes at an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield partial
        (partial / RECIPE).write_text(_digest(sources))
        partial.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a file at once: whoever reads it meanwhile sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def _digest(sources: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
