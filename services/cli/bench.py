"""`dapo bench NAME [argument ...]`: one benchmark of the repository, with its own arguments and its own exit status.

The benchmarks measure the numbers that the documentation quotes; they are no part of the wheel.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import USER_ERROR_EXIT_STATUS

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    known = benchmarks(ROOT / "benchmarks")
    if words[:1] in (["-h"], ["--help"]):
        print(_help(known))
        return 0
    words[:1] = [word.replace("_", "-") for word in words[:1]]
    if not words or words[0] not in known:
        print(f"dapo bench: {_mistake(words, known)}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(known[words[0]]), *words[1:]]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def benchmarks(folder: Path) -> dict[str, Path]:
    """The benchmarks by name: the files that can be run."""
    files = sorted(folder.glob("*.py"))
    return {file.stem.replace("_", "-"): file for file in files if "__main__" in file.read_text(encoding="utf-8")}


def _mistake(words: Sequence[str], known: dict[str, Path]) -> str:
    if not known:
        return "the benchmarks are not in the installed package: run it from a checkout of the repository"
    names = ", ".join(known)
    return f"no benchmark is named `{words[0]}`: there are {names}" if words else f"name a benchmark: {names}"


def _help(known: dict[str, Path]) -> str:
    lines = [f"  {name:<18} {_first_line(path)}" for name, path in known.items()]
    usage = "usage: dapo bench NAME [argument ...]     (`dapo bench NAME --help` explains one)"
    return "\n".join([usage, "", "benchmarks:", *lines])


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
