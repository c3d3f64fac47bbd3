r"""Answers that are words: names, yes and no, option letters, times of day, ratios."""

import re
from fractions import Fraction

from services.reward.maths.numerals import read_number

_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORDS = re.compile("[A-Za-z\u00c0-\u024f\u4e00-\u9fff' -]+")
_RUN = re.compile("[A-Za-z\u00c0-\u024f]{3}|[\u4e00-\u9fff]")
_OPTION = re.compile(r"(?:(?:option|choice|answer)\s+)?\(?\s*([A-J])\s*\)?", re.I)
_LABELLED = re.compile(r"(?:\(\s*([A-J])\s*\)|([A-J])\s*[.):])\s*(\S.*)", re.S)
_STANDING_LETTER = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?\s*([ap])?\.?\s*(?:m\.?)?", re.I)


def without_text(text: str) -> str:
    r"""Without \text{}."""
    return re.sub(r"\s+", " ", _TEXT.sub(r" \1 ", text)).strip()


def words_of(text: str) -> str | None:
    """The words of an answer that is nothing but words, in lower case; None for one that may be mathematics."""
    spoken = without_text(text)
    if not _WORDS.fullmatch(spoken) or not _RUN.search(spoken):
        return None
    return re.sub(r"^(?:the|a|an)\s+", "", re.sub(r"[\s'-]+", " ", spoken.lower()).strip())


def option_of(text: str) -> str | None:
    """The option letter that an answer is: `C`, `(C)`, `option C`, `C. 12 apples`; None if it names none or several."""
    text = without_text(text)
    bare = _OPTION.fullmatch(text)
    if bare is not None and bare[1].isupper():
        return bare[1]
    labelled = _LABELLED.fullmatch(text)
    if labelled is None or _STANDING_LETTER.search(labelled[3]):
        return None
    return labelled[1] or labelled[2]


def options_of(text: str) -> list[str] | None:
    """The letters of several options written as one word in order, `BD`; None for anything else."""
    return list(text) if re.fullmatch("[A-J]{2,10}", text) and sorted(set(text)) == list(text) else None


def without_label(text: str) -> tuple[str, str] | None:
    r"""Letter and rest of `\text{(B)} 12`; None without a label in parentheses."""
    labelled = _LABELLED.fullmatch(without_text(text))
    return (labelled[1], labelled[3]) if labelled and labelled[1] else None


def clock_of(text: str) -> tuple[int, int, int, str] | None:
    """Hour, minute, second and a/p of a time of day."""
    match = _CLOCK.fullmatch(without_text(text))
    if match is None or int(match[1]) > 24:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0), (match[4] or "").lower()


def ratio_of(text: str) -> tuple[Fraction, ...] | None:
    """The terms of `3 : 4 : 5`, divided by the first; None if it is no ratio of numbers."""
    numbers = [read_number(part) for part in text.split(":")]
    values = [number.value for number in numbers if number is not None]
    if len(values) < 2 or len(values) != len(numbers) or not values[0]:
        return None
    return tuple(value / values[0] for value in values)
