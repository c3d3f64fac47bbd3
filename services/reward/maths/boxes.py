r"""Where \boxed{...} is in a text, read from the right.

The last box wins. Boxes with nothing but a separator between them ("\boxed{1} and \boxed{-2}") are one answer with
several values, so that listing guesses in two boxes is worth no more than listing them in one. A last box that never
closes is no answer: nothing falls back to an earlier one.
"""

import re
from dataclasses import dataclass

_COMMAND = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BARE = re.compile(
    r"([^\s{}$\\][^\s{}$]{0,60}|\\[A-Za-z]+(?:\{[^{}]*\})*)\s*(?=\$|\\\)|\\\])|([-+]?\d[\d.,/]*)\s*$", re.M
)
_BETWEEN = re.compile(
    r"(?:[\s$,;.&]|\\[()\[\],;!]|\\q?quad|\\\\|\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b|和|或"
    r"|[A-Za-z](?:_\{?\w+\}?)?\s*=)*"
)


@dataclass(frozen=True, slots=True)
class Boxes:
    """The last run of boxes of a text."""

    start: int
    """Where its first box begins."""
    contents: tuple[str, ...] | None
    """What the boxes hold, in order, repeats left out; None if the last box never closes or is empty."""


def last_boxes(text: str) -> Boxes | None:
    """The last box of a text with the boxes joined to it; None if there is no box."""
    found: Boxes | None = None
    limit = len(text)
    for match in reversed(list(_COMMAND.finditer(text))):
        box = _read(text, match, limit)
        if box is None:
            continue
        content, end = box
        if found is None:
            found = Boxes(match.start(), (content,) if content else None)
        elif content is None or not _BETWEEN.fullmatch(text, end, limit):
            break
        else:
            found = _joined(found, match.start(), content)
        if found.contents is None:
            break
        limit = match.start()
    return found


def closing_brace(text: str, opening: int, limit: int) -> int | None:
    r"""Position of the brace that closes the one at `opening`; `\{` and `\}` are not braces."""
    depth, at = 0, opening
    while at < limit:
        sign = text[at]
        if sign == "\\":
            at += 1
        elif sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return None


def unwrap(text: str) -> str:
    r"""Replace every closed \boxed{...} of a short text by its content."""
    while match := _COMMAND.search(text):
        at = match.end()
        end = closing_brace(text, at, len(text)) if text.startswith("{", at) else None
        text = text[: match.start()] + (text[at:] if end is None else text[at + 1 : end] + text[end + 1 :])
    return text


def _read(text: str, match: re.Match[str], limit: int) -> tuple[str | None, int] | None:
    r"""Content and end of the box at `match`; content None if it never closes; None for the bare word \boxed."""
    at = match.end()
    if text.startswith("{", at):
        end = closing_brace(text, at, limit)
        return (None, limit) if end is None else (text[at + 1 : end].strip(), end + 1)
    bare = _BARE.match(text, at, limit)
    return None if bare is None else ((bare[1] or bare[2]).strip(), bare.end())


def _joined(found: Boxes, start: int, content: str) -> Boxes:
    contents = found.contents or ()
    return Boxes(start, contents if content in contents else (content, *contents))
