r"""A canonical text in the words that the LaTeX grammar of math-verify knows."""

import re

_LETTER = re.compile(r"\\text\s*\{\s*([A-Za-z])\s*\}")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*°")


def for_parser(text: str) -> str:
    r"""`\text{e}` -> `e`, `30°` -> a fraction of pi, `%` -> `\%`, `\le` -> `\leq`."""
    text = _LETTER.sub(r" \1 ", text)
    text = _DEGREES.sub(r"{(\\frac{\1\\pi}{180})}", text)
    text = text.replace("%", r"\%").replace(r"\approx", "=")
    return re.sub(r"\\(le|ge|ne)(?![A-Za-z])", lambda m: {"le": r"\leq", "ge": r"\geq", "ne": r"\neq"}[m[1]], text)
