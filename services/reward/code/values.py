"""Values that were printed or returned, compared with those that should have been.

    printed    line by line, without spaces at the ends and without empty lines at the end; in a line word by word:
               equal, or numbers of equal value, or, where the expected one is no integer, within 1e-6 (absolute, or
               relative to the expected one)
    returned   plain values, as JSON: numbers as above, tuples as lists, sets as sorted lists, keys as text

Both sides are plain texts and values here, never objects of the program, so nothing of it takes part.
"""

import json
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

TOLERANCE = 1e-6
_SHORT = 300
"""Digits up to which a number is read as one; longer ones are compared as text."""


def same_text(printed: str, expected: str) -> bool:
    """Whether what was printed is what is expected."""
    ours, theirs = _lines(printed), _lines(expected)
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def same_value(returned: Any, expected: Any) -> bool:
    """Whether a returned value is the expected one; both as JSON has them."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(returned, list | tuple)
            and len(returned) == len(expected)
            and all(map(same_value, returned, expected))
        )
    if isinstance(expected, Mapping):
        theirs = {str(key): value for key, value in expected.items()}
        return (
            isinstance(returned, Mapping)
            and set(returned) == set(theirs)
            and all(same_value(returned[key], value) for key, value in theirs.items())
        )
    if isinstance(expected, float) and isinstance(returned, int | float) and not isinstance(returned, bool):
        return _close(float(returned), expected)
    if isinstance(expected, bool | str | None) or isinstance(returned, bool | str | None):
        return type(returned) is type(expected) and returned == expected
    return bool(returned == expected)


def read_json(text: str) -> Any:
    """A JSON value; integers of any length."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= _SHORT else Decimal(digits))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.rstrip().split("\n")]


def _same_line(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    words, wanted = ours.split(), theirs.split()
    return len(words) == len(wanted) and all(map(_same_word, words, wanted))


def _same_word(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    if max(len(ours), len(theirs)) > _SHORT:
        return False
    number, wanted = _number(ours), _number(theirs)
    if number is None or wanted is None:
        return False
    return number == wanted or (not theirs.lstrip("+-").isdigit() and _close(float(number), float(wanted)))


def _number(word: str) -> Decimal | None:
    if not word.isascii() or "_" in word:
        return None
    try:
        number = Decimal(word)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _close(ours: float, theirs: float) -> bool:
    return ours == theirs or (math.isfinite(ours) and abs(ours - theirs) <= TOLERANCE * max(1.0, abs(theirs)))
