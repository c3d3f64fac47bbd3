"""A data file to raw rows, one by one: JSONL, JSON, Parquet (known by its first bytes) or CSV (by its name).

A row that cannot be read is a value, `Unreadable`, in its place, so that the rows after it keep their numbers. A file
that cannot be read at all is a mistake of the user.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError

PARQUET_MAGIC = b"PAR1"
SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
MOST_CHARACTERS = 1 << 24
"""Of one CSV field; Python's own limit is 128 kB."""


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A row that is no row, and why."""

    reason: str


def rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(number from 1, JSON value, record or `Unreadable`); empty lines of JSONL count, but are no rows."""
    try:
        with path.open("rb") as file:
            start = file.read(len(PARQUET_MAGIC))
    except FileNotFoundError:
        hint = "give the path of a JSONL, Parquet or CSV file, or the name of a data set"
        raise UserError(f"data file {path} does not exist: {hint}") from None
    except OSError as error:
        raise UserError(f"data file {path} cannot be read: {error.strerror}") from error
    if start == PARQUET_MAGIC or path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix == ".csv":
        return _csv(path)
    return _json_array(path) if path.suffix == ".json" and start.lstrip()[:1] == b"[" else _jsonl(path)


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, _json(line, "utf-8-sig" if number == 1 else "utf-8")


def _json_array(path: Path) -> Iterator[tuple[int, Any]]:
    whole = _json(path.read_bytes(), "utf-8")
    if isinstance(whole, Unreadable):
        raise UserError(f"data file {path} cannot be read as JSON: {whole.reason}")
    return iter(enumerate(whole, start=1))


def _json(line: bytes, encoding: str) -> Any:
    try:
        return json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        return Unreadable(reason=f"it is not UTF-8 (byte {error.start} of the line)")
    except (ValueError, RecursionError) as error:
        return Unreadable(reason=f"it is not JSON ({error})")


def _csv(path: Path) -> Iterator[tuple[int, Any]]:
    """Rows are numbered without the header; a quoted field may hold line breaks."""
    csv.field_size_limit(MOST_CHARACTERS)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for number, record in enumerate(reader, start=1):
                yield number, _checked(record)
        except csv.Error as error:
            raise UserError(f"data file {path}, line {reader.line_num}, cannot be read as CSV: {error}") from error


def _checked(record: dict[str | Any, Any]) -> Any:
    if None in record:
        return Unreadable(reason="it has more fields than the header")
    if any("\udc80" <= character <= "\udcff" for value in record.values() if value for character in value):
        return Unreadable(reason="it is not UTF-8")
    return record


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
