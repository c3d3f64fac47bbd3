"""What `data` may name, and the raw rows behind it.

rows.jsonl, rows.json, rows.parquet, rows.csv     a file: reading.py
folder                                            a Hugging Face data set on disk: hub.py
openai/gsm8k?config=main&split=train              a Hugging Face data set by name: hub.py
gym:leg_counting?size=500&seed=1                  a reasoning-gym data set, generated: gym.py
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError
from services.filter import reading

GYM = "gym:"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Source(NamedTuple):
    """A data set as the user names it."""

    text: str
    """All of it."""
    name: str
    """Without options; a path, or a name."""
    options: dict[str, str]

    @property
    def label(self) -> str:
        """What `category = "set"` calls it: the stem of a file, else the name."""
        return Path(self.name).stem if Path(self.name).is_file() else self.name.removeprefix(GYM)


def source(text: str) -> Source:
    """Take a name apart; raises `UserError` for options that are not `key=value`."""
    if Path(text).exists():
        return Source(text, text, {})
    name, _, rest = text.partition("?")
    pairs = [pair.partition("=") for pair in rest.split("&") if pair]
    for key, equals, _ in pairs:
        if not equals:
            raise UserError(f"data `{text}`: option `{key}` is not of the form key=value")
    return Source(text, name, {key: value for key, _, value in pairs})


def raw_rows(source: Source) -> Iterator[tuple[int, Any]]:
    """(number from 1, JSON value, record or `Unreadable`); raises `UserError` if it cannot be read at all."""
    if source.name.startswith(GYM):
        from services.filter import gym

        return gym.rows(source.name.removeprefix(GYM), source.options)
    if Path(source.name).is_dir() or _is_hub_name(source.name):
        from services.filter import hub

        return hub.rows(source.name, source.options)
    return reading.rows(Path(source.name))


def _is_hub_name(name: str) -> bool:
    """`OWNER/NAME` that is no path: nothing is there, no folder OWNER is, and NAME has no ending of a data file."""
    path = Path(name)
    is_path = path.exists() or path.parent.exists() or path.suffix in reading.SUFFIXES
    return bool(HUB_NAME.fullmatch(name)) and not is_path
