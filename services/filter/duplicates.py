"""Rows that say the same: once if they agree, not at all if they do not.

    prompt and answer seen before                                        duplicate: left out
    the same but for spaces, line ends, forms of a letter                near duplicate: left out
    prompt seen before, exactly or nearly, with another answer           conflict: all of them left out

Nobody can say which of two answers is right. Indentation and case count: they can be what the question is about.
Groups are never merged by their text; only rows are, before the first prompt is issued.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from common.messages import ChatMessage
from services.filter.schema import Row

Chat = tuple[ChatMessage, ...]

LINE_ENDS = re.compile(r"\r\n?|[\u2028\u2029\x85]")
INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
WIDE_SPACES = re.compile(r"[^\S\n\t ]")
INNER_SPACES = re.compile(r"(?<=\S)[ \t]+")
TRAILING_SPACES = re.compile(r"[ \t]+$", re.MULTILINE)


class Place(NamedTuple):
    """A row: which data set, and its number there."""

    set: int
    number: int


@dataclass(kw_only=True)
class Found:
    """What became of the rows of one data set; numbers in order."""

    rows: list[Row] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    near: list[int] = field(default_factory=list)
    conflicts: list[int] = field(default_factory=list)


class Uniques:
    """Rows of any number of data sets, each prompt once."""

    def __init__(self) -> None:
        self._keys: dict[Chat, bytes] = {}
        """Of exact prompts: of a file that repeats itself a hundred times only the first copy is normalised."""
        self._first: dict[bytes, tuple[Place, Row]] = {}
        self._copies: dict[bytes, list[tuple[Place, bool]]] = {}
        """Of each later row, whether it is the same exactly."""
        self._conflicting: set[bytes] = set()

    def add(self, row: Row, *, of_set: int = 0) -> None:
        """One more row."""
        key = self._keys.get(row.chat)
        if key is None:
            key = self._keys[row.chat] = fingerprint(row.chat)
        place = Place(of_set, row.number)
        if key not in self._first:
            self._first[key] = place, row
            return
        first = self._first[key][1]
        self._copies.setdefault(key, []).append((place, row.chat == first.chat))
        if (row.task.gold, row.task.tests) != (first.task.gold, first.task.tests):
            self._conflicting.add(key)

    def found(self, num_sets: int = 1) -> list[Found]:
        """By data set."""
        sets = [Found() for _ in range(num_sets)]
        for key, (place, row) in self._first.items():
            if key in self._conflicting:
                sets[place.set].conflicts.append(place.number)
            else:
                sets[place.set].rows.append(row)
        for key, copies in self._copies.items():
            for place, exact in copies:
                where = sets[place.set]
                kind = where.conflicts if key in self._conflicting else where.duplicates if exact else where.near
                kind.append(place.number)
        for one in sets:
            for numbers in (one.duplicates, one.near, one.conflicts):
                numbers.sort()
        return sets


def fingerprint(chat: Sequence[ChatMessage]) -> bytes:
    """The same for prompts that are the same or nearly so."""
    digest = hashlib.blake2b(digest_size=16)
    for message in chat:
        digest.update(f"{message.role}\0{normalised(message.content)}\0".encode())
    return digest.digest()


def normalised(text: str) -> str:
    """One form for texts that look alike. Superscripts and the like stay: x² is not x2."""
    text = LINE_ENDS.sub("\n", unicodedata.normalize("NFC", text))
    text = WIDE_SPACES.sub(" ", INVISIBLE.sub("", text))
    text = TRAILING_SPACES.sub("", INNER_SPACES.sub(" ", text))
    return text.strip()
