"""A file of rows to a data set: read, parse, find duplicates, hold some out.

    file -> raw rows -> Row | Refusal -> duplicates kept once, conflicts out -> Dataset

Reads JSONL and Parquet. Rows with the same prompt and answer count once; rows with the same prompt and different
answers are all left out, since nobody can say which is right.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.messages import VERIFIERS, ChatMessage
from services.filter.config import FilterConfig
from services.filter.schema import Refusal, Row, parse

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The usable rows of a file, and what became of the others."""

    path: Path
    rows: list[Row] = field(repr=False)
    refusals: list[Refusal] = field(default_factory=list)
    duplicates: list[Row] = field(default_factory=list)
    """Rows left out because the same prompt and answer came before."""
    conflicts: list[Row] = field(default_factory=list)
    """Rows left out because the same prompt has another answer elsewhere."""


def load(path: Path, *, verifier: str) -> Dataset:
    """Read a data file; raises `UserError` if it cannot be read at all."""
    parsed = [parse(number, raw, verifiers=VERIFIERS, verifier=verifier) if not isinstance(raw, Refusal) else raw
              for number, raw in raw_rows(path)]  # fmt: skip
    rows = [row for row in parsed if isinstance(row, Row)]
    answers: dict[tuple[ChatMessage, ...], set[str]] = {}
    for row in rows:
        answers.setdefault(row.chat, set()).add(row.task.gold + row.task.tests)
    kept: dict[tuple[ChatMessage, ...], Row] = {}
    duplicates, conflicts = [], []
    for row in rows:
        if len(answers[row.chat]) > 1:
            conflicts.append(row)
        elif row.chat in kept:
            duplicates.append(row)
        else:
            kept[row.chat] = row
    refusals = [row for row in parsed if isinstance(row, Refusal)]
    return Dataset(path=path, rows=list(kept.values()), refusals=refusals, duplicates=duplicates, conflicts=conflicts)


def raw_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Numbered raw rows from 1; a line that cannot be read is a `Refusal`."""
    if not path.exists():
        raise UserError(f"data file {path} does not exist: set [filter] data to a JSONL or Parquet file")
    if path.suffix == ".parquet":
        yield from enumerate(_parquet(path), start=1)
        return
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"data file {path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, _json(number, line)


def training_rows(config: FilterConfig) -> tuple[list[Row], list[Row]]:
    """(training rows, held-out rows) of a run, ready to be issued; raises `UserError` for rows that cannot be used."""
    train = _usable(load(Path(config.data), verifier=config.verifier), config)
    if config.eval_data:
        held_out = _usable(load(Path(config.eval_data), verifier=config.verifier), config)
    else:
        by_hash = sorted(train, key=lambda row: hashlib.sha256(str(row.chat).encode()).digest())
        held_out = sorted(by_hash[: config.eval_rows], key=lambda row: row.number)
        train = [row for row in train if row not in held_out] if held_out else train
    if not train:
        raise UserError(f"data file {config.data} has no row to train on: see `dapo data check {config.data}`")
    return [_dressed(row, config) for row in train], [_dressed(row, config) for row in held_out]


def _usable(data: Dataset, config: FilterConfig) -> list[Row]:
    """The rows of a data set, after saying what was left out."""
    if data.refusals and config.on_bad_row == "fail":
        first = data.refusals[0]
        raise UserError(
            f"data file {data.path}, row {first.number}: {first.reason} ({len(data.refusals)} such rows in all); mend "
            f"them, see `dapo data check {data.path}`, or set [filter] on_bad_row = \"drop\""
        )  # fmt: skip
    for kind, rows in (("refused", data.refusals), ("duplicate", data.duplicates), ("conflicting", data.conflicts)):
        if rows:
            numbers = [row.number for row in rows[:20]]
            log.warning(f"{kind} rows left out", extra={"file": str(data.path), "count": len(rows), "rows": numbers})
    return data.rows


def _dressed(row: Row, config: FilterConfig) -> Row:
    """The row with the system prompt and the suffix of the run."""
    chat = list(row.chat)
    if config.system and chat[0].role != "system":
        chat.insert(0, ChatMessage(role="system", content=config.system))
    if config.suffix:
        last = max(place for place, message in enumerate(chat) if message.role == "user")
        chat[last] = ChatMessage(role="user", content=chat[last].content + config.suffix)
    return replace(row, chat=tuple(chat))


def _json(number: int, line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Refusal(number=number, reason=f"it is not UTF-8 (byte {error.start} of the line)")
    except (json.JSONDecodeError, RecursionError) as error:
        return Refusal(number=number, reason=f"it is not JSON ({error})")


def _parquet(path: Path) -> Sequence[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_table(path).to_pylist())
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"data file {path} cannot be read as Parquet: {error}") from error
