"""The program in a model's answer.

    thinking, if it ended, is left out -> fenced blocks -> those that are Python -> the one that solves the task

Blocks marked as Python count; if there are none, unmarked ones. Of these it is the last that defines the wanted
function, or, for programs that read and print, the last that reads the standard input, so that a demonstration after
the solution is not taken for it; else the last. A fence that never closes ends with the answer. Without fences the
whole answer is the program, if it is Python. No program is ever mended or put together from pieces.
"""

import ast
import re
import warnings
from collections.abc import Iterator

from services.reward.maths.extraction import after_thinking, first_turn

_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<mark>[\w+#.-]*)[^\n]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)|\Z)", re.M | re.S
)
_PYTHON = frozenset({"python", "python3", "py", "py3"})
_READS = re.compile(r"\binput\b|\bstdin\b|\bopen\(0|/dev/stdin|\bfileinput\b")


def program_of(output: str, function: str = "") -> str | None:
    """The source text; None if the answer has none."""
    text = after_thinking(output)
    if text is None:
        return None
    found = [(match["mark"].lower(), match["code"]) for match in _FENCE.finditer(text)]
    if not found:
        text = first_turn(text).strip()
        return text if text and _parsed(text) is not None else None
    marked = [code for mark, code in found if mark in _PYTHON]
    sources = marked or [code for mark, code in found if not mark and _parsed(code) is not None]
    solving = [code for code in sources if (_defines(code, function) if function else _READS.search(code))]
    return next(reversed(solving or sources), None)


def _parsed(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defines(code: str, function: str) -> bool:
    """Whether the code gives the function a value: alone or in a class."""
    return any(function in _names(node) for node in _statements(_parsed(code)))


def _statements(tree: ast.Module | None) -> Iterator[ast.stmt]:
    """Those of the module and of its classes."""
    for node in tree.body if tree else []:
        yield node
        yield from node.body if isinstance(node, ast.ClassDef) else []


def _names(node: ast.stmt) -> set[str]:
    """What a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
