r"""The outer shape of an answer, found by brackets and separators alone.

4, 6, 14     1331 and 1728    p=5,q=2; p=7,q=2      Items "list"     order free, unless met by a tuple
(1, 2)       (3, \frac{\pi}{2})   [1, 2)            Items "tuple"    ordered; brackets kept: a point or an interval
\{1, 2\}                                            Items "set"      order and repetition free
(0,1) \cup (2,3)                                    Items "union"
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}        Items "matrix"   of rows
x = 3    f(x) = x+1    x \in [0,1)                  Named            a name for the answer
1 \pm \sqrt 5                                       Items "list"     of two values
anything else                                       Leaf
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from services.reward.maths.numerals import read_number
from services.reward.maths.units import take_apart

Kind = Literal["list", "tuple", "set", "union", "matrix"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without outer shape."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Several values in an outer shape."""

    text: str
    kind: Kind
    items: tuple["Node", ...]
    brackets: str = ""
    """Opening and closing bracket of a tuple."""


@dataclass(frozen=True, slots=True)
class Named:
    """`name = value`."""

    text: str
    name: str
    value: "Node"


Node = Leaf | Items | Named

_TOKEN = re.compile(r"\\begin|\\end|\\[{}]|\\cup(?![A-Za-z])|\\in(?![A-Za-z])|\\approx|\\[A-Za-z]+|\\.|.", re.S)
_OPENING = frozenset((r"\begin", r"\{", "(", "[", "{"))
_CLOSING = frozenset((r"\end", r"\}", ")", "]", "}"))
_MATRIX = re.compile(
    r"([\[(]?)\s*\\begin\{([pb]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\2\}\s*([\])]?)", re.S
)
_EUROPEAN = re.compile(r"\A([\]\[])([^\[\]]+)([\[\]])\Z")
_SUBSCRIPT = re.compile(r"_\s*(?:\{[^{}]*\}|\w)")
_NAME = re.compile(
    r"(?=.*[A-Za-z])(?:[A-Za-z|:/' ]|\\(?!(?:frac|sqrt|cdot|log|ln)(?![A-Za-z]))[A-Za-z]+(?![A-Za-z])|\{[A-Za-z ]+\}"
    r"|\\frac\{[A-Z]{1,3}\}\{[A-Z]{1,3}\}|\^\{-1\}(?=\()|(?<=[A-Za-z}])\([^()]*\)|\((?:[A-Za-z]\s*,\s*)+[A-Za-z]\))+"
)
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3})+(?!\d)")


def read(text: str) -> Node:
    """The shape of a canonical text."""
    text = text.strip()
    if read_number(take_apart(text).body) is not None:
        return Leaf(text)
    text = _EUROPEAN.sub(_in_parentheses, text)
    return _list(text) or _named(text) or _plus_minus(text) or _union(text) or _bracketed(text) or Leaf(text)


def _in_parentheses(match: re.Match[str]) -> str:
    """`]0,1[` -> `(0,1)`."""
    return ("(" if match[1] == "]" else "[") + match[2] + (")" if match[3] == "[" else "]")


def split(text: str, signs: Iterable[str]) -> list[str]:
    """The parts of a text between signs outside all brackets."""
    parts, depth, start = [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        depth = max(0, depth + (token in _OPENING) - (token in _CLOSING))
        if depth == 0 and token in signs:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def _list(text: str) -> Items | None:
    for sign in (";", ","):
        parts = split(text, (sign,)) if sign == ";" else _split_commas(text)
        if len(parts) > 1:
            return Items(text, "list", tuple(read(part) for part in parts if part))
    return None


def _split_commas(text: str) -> list[str]:
    """Split at commas; where values are set apart by comma and space, `1,000` stays one of them."""
    if re.search(r",\s", text):
        text = _THOUSANDS.sub(lambda m: m[0].replace(",", ""), text)
    return split(text, (",",))


def _named(text: str) -> Named | None:
    exact, *rounded = split(text, (r"\approx",))
    name, *values = split(exact, ("=", r"\in"))
    if values and values[-1] and is_name(name):
        return Named(text, name, read(values[-1]))
    if rounded and rounded[-1] and (not exact or is_name(exact)):
        return Named(text, exact, read(rounded[-1]))
    return None


def is_name(text: str) -> bool:
    """A letter, a function of something, a segment, an angle, a ratio of names: nothing that computes."""
    return bool(_NAME.fullmatch(_SUBSCRIPT.sub("", text).strip()))


def _plus_minus(text: str) -> Items | None:
    if not re.search(r"\\pm(?![A-Za-z])", text):
        return None
    upper = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
    lower = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
    inner = read(upper), read(lower)
    if isinstance(inner[0], Items) and inner[0].kind == "set" and isinstance(inner[1], Items):
        return Items(text, "set", inner[0].items + inner[1].items)
    return Items(text, "list", tuple(Leaf(node.text.removeprefix("+").strip()) for node in inner))


def _union(text: str) -> Items | None:
    parts = split(text, (r"\cup",))
    return Items(text, "union", tuple(read(part) for part in parts)) if len(parts) > 1 else None


def _bracketed(text: str) -> Node | None:
    matrix = _MATRIX.fullmatch(text)
    if matrix is not None:
        rows = (row for row in split(matrix[3], (r"\\",)) if row)
        cells = (tuple(read(cell) for cell in split(row, ("&",))) for row in rows)
        return Items(text, "matrix", tuple(Items("", "tuple", row) for row in cells))
    opening = r"\{" if text.startswith(r"\{") else text[:1]
    closing = r"\}" if text.endswith(r"\}") else text[-1:]
    if opening not in (r"\{", "(", "[", "{") or closing not in (r"\}", ")", "]", "}") or not _spans(text):
        return None
    return _items(text, opening, text[len(opening) : len(text) - len(closing)], closing)


def _spans(text: str) -> bool:
    """Whether the first bracket closes at the very end."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
        if depth == 0:
            return match.end() == len(text)
    return False


def _items(text: str, opening: str, inner: str, closing: str) -> Node | None:
    parts = [part for sign in (";", ",") if len(part := split(inner, (sign,))) > 1][:1]
    values = tuple(read(value) for value in (parts[0] if parts else [inner]) if value)
    if opening == r"\{":
        flat = (v.items if isinstance(v, Items) and v.kind == "list" else (v,) for v in values)
        return Items(text, "set", tuple(value for group in flat for value in group)) if "|" not in inner else None
    if not parts:
        return read(inner) if (opening, closing) in (("(", ")"), ("{", "}")) and inner.strip() else None
    if opening == "{":
        return Items(text, "list", values)
    return Items(text, "tuple", values, opening + closing)
