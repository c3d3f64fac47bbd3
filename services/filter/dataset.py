"""A file of rows to a data set: read, parse, find duplicates, hold some out.

    file -> raw rows -> Row | Refusal -> duplicates kept once, conflicts out -> Dataset

Of a file that repeats its rows a hundred times only the unique ones are kept in memory. Rows with the same prompt and
answer count once; rows with the same prompt and different answers are all left out, since nobody can say which is
right.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prometheus_client import Gauge

from common.errors import UserError
from common.messages import ChatMessage
from services.filter.config import FilterConfig
from services.filter.reading import raw_rows
from services.filter.schema import Refusal, Row, parse

log = logging.getLogger(__name__)

ROWS = Gauge("dapo_filter_rows", "Rows of the training file by what became of them.", ["fate"])

Chat = tuple[ChatMessage, ...]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The usable rows of a file, and what became of the others."""

    path: Path
    rows: list[Row] = field(default_factory=list, repr=False)
    refusals: list[Refusal] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    """Numbers of the rows left out because the same prompt and answer came before."""
    conflicts: list[int] = field(default_factory=list)
    """Numbers of the rows left out because the same prompt has another answer elsewhere."""

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return len(self.rows) + len(self.refusals) + len(self.duplicates) + len(self.conflicts)


def load(path: Path, *, verifier: str = "", category: str = "data_source") -> Dataset:
    """Read a data file; raises `UserError` if it cannot be read at all."""
    refusals: list[Refusal] = []
    first: dict[Chat, Row] = {}
    others: dict[Chat, list[int]] = {}
    conflicting: set[Chat] = set()
    for number, raw in raw_rows(path):
        row = parse(number, raw, verifier=verifier, category=category)
        if isinstance(row, Refusal):
            refusals.append(row)
        elif row.chat not in first:
            first[row.chat] = row
        else:
            others.setdefault(row.chat, []).append(number)
            if _answer(row) != _answer(first[row.chat]):
                conflicting.add(row.chat)
    return Dataset(
        path=path,
        rows=[row for chat, row in first.items() if chat not in conflicting],
        refusals=refusals,
        duplicates=sorted(n for chat, numbers in others.items() if chat not in conflicting for n in numbers),
        conflicts=sorted(n for chat in conflicting for n in (first[chat].number, *others[chat])),
    )


def training_rows(config: FilterConfig) -> tuple[list[Row], list[Row]]:
    """(training rows, held-out rows) of a run, ready to be issued; raises `UserError` for rows that cannot be used."""
    data = load(Path(config.data), verifier=config.verifier, category=config.category)
    ROWS.labels("unique").set(len(data.rows))
    ROWS.labels("duplicate").set(len(data.duplicates))
    ROWS.labels("conflict").set(len(data.conflicts))
    ROWS.labels("refused").set(len(data.refusals))
    train = _usable(data, config)
    if config.eval_data:
        held_out = _usable(load(Path(config.eval_data), verifier=config.verifier), config)
    else:
        held_out = sorted(sorted(train, key=_hash)[: config.eval_rows], key=lambda row: row.number)
    train = _without(train, held_out)
    if not train:
        raise UserError(f"data file {config.data} has no row to train on: see `dapo data check {config.data}`")
    return [_dressed(row, config) for row in train], [_dressed(row, config) for row in held_out]


def _answer(row: Row) -> tuple[str, str]:
    return row.task.gold, row.task.tests


def _hash(row: Row) -> bytes:
    """Of the prompt alone, so that the split depends neither on the order of the rows nor on the answers."""
    text = json.dumps([[message.role, message.content] for message in row.chat])
    return hashlib.sha256(text.encode()).digest()


def _without(train: list[Row], held_out: Sequence[Row]) -> list[Row]:
    """The training rows that nobody holds out: a prompt that is evaluated is not trained."""
    held = {row.chat for row in held_out}
    return [row for row in train if row.chat not in held]


def _usable(data: Dataset, config: FilterConfig) -> list[Row]:
    """The rows of a data set, after saying what was left out."""
    if data.refusals and config.on_bad_row == "fail":
        first = data.refusals[0]
        raise UserError(
            f"data file {data.path}, row {first.number}: {first.reason} ({len(data.refusals)} such rows in all); mend "
            f'them, see `dapo data check {data.path}`, or set [filter] on_bad_row = "drop"'
        )
    refused = [refusal.number for refusal in data.refusals]
    for kind, numbers in (("refused", refused), ("duplicate", data.duplicates), ("conflicting", data.conflicts)):
        if numbers:
            extra = {"file": str(data.path), "count": len(numbers), "rows": numbers[:20]}
            log.warning(f"{kind} rows left out", extra=extra)
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
