"""A data file to raw rows, one by one: JSONL or Parquet, told apart by the first bytes.

A row that cannot be read is a value, `Unreadable`, in its place, so that the rows after it keep their numbers. A file
that cannot be read at all is a mistake of the user.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError

PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A row that is no row, and why."""

    reason: str


def raw_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(number from 1, JSON value, Parquet record or `Unreadable`); empty lines count, but are no rows."""
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC or path.suffix == ".parquet"
    except FileNotFoundError:
        raise UserError(f"data file {path} does not exist: give the path of a JSONL or Parquet file") from None
    except OSError as error:
        raise UserError(f"data file {path} cannot be read: {error.strerror}") from error
    return _parquet(path) if is_parquet else _jsonl(path)


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, _json(line, "utf-8-sig" if number == 1 else "utf-8")


def _json(line: bytes, encoding: str) -> Any:
    try:
        return json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        return Unreadable(reason=f"it is not UTF-8 (byte {error.start} of the line)")
    except (ValueError, RecursionError) as error:
        return Unreadable(reason=f"it is not JSON ({error})")


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for record in _records(batch):
                    number += 1
                    yield number, record
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"data file {path} cannot be read as Parquet: {error}") from error


def _records(batch: Any) -> list[Any]:
    """The rows of a record batch; each by itself if the text of one cannot be decoded."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        return [_record(batch.slice(place, 1)) for place in range(batch.num_rows)]


def _record(batch: Any) -> Any:
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return Unreadable(reason=f"it is not UTF-8 (byte {error.start} of a column)")
