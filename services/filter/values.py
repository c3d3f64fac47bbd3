"""The values in a raw row, and how one that cannot be used is said."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


class UnusableError(Exception):
    """Why the row that is being parsed cannot be used; never leaves `schema.parse`."""


def text(value: Any, what: str) -> str:
    """Text, or a number as text; empty for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        raise UnusableError(f"the {what} is {_shown(value)}: give text or a number")
    return str(value)


def nested(raw: Mapping[str, Any], path: str) -> Any:
    """The value at `a.b`; None if something on the way is absent."""
    value: Any = raw
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def first(raw: Mapping[str, Any], *columns: str) -> Any:
    """The value of the first of these columns that has one: a Parquet file of mixed rows has all columns, many null."""
    return next((raw[column] for column in columns if raw.get(column) is not None), None)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, bool | float | Decimal) else f"of type {type(value).__name__}"
