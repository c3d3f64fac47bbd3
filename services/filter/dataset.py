"""Data sets to the rows of a run: read, parse, find duplicates, hold some out, dress, fit.

    sources -> raw rows -> Row | Refusal -> each prompt once, conflicts out -> held-out | training
            -> system prompt and suffix -> at most max_prompt_tokens

Of a file that repeats its rows a hundred times only the unique ones are kept in memory. A prompt that is evaluated is
not trained, whichever set it comes from.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from prometheus_client import Gauge

from common.config import RunConfig
from common.errors import UserError
from common.messages import ChatMessage
from services.filter.config import FilterConfig
from services.filter.duplicates import Found, Uniques, fingerprint
from services.filter.fitting import Count, counter, fitted, last_user
from services.filter.judging import UNSAID, Judging, check_metric
from services.filter.schema import Refusal, Row, parse
from services.filter.sources import Source, raw_rows, source

log = logging.getLogger(__name__)

ROWS = Gauge("dapo_filter_rows", "Rows of the training data by what became of them.", ["fate"])

SET = "set"
"""The category that is the data set a row comes from."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The usable rows of a data set, and what became of the others."""

    source: Source
    found: Found
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Rows that were read."""
        found = self.found
        return len(self.refusals) + len(found.rows) + len(found.duplicates) + len(found.near) + len(found.conflicts)


def load(
    names: Sequence[str], *, judging: Judging = UNSAID, category: str = "data_source"
) -> list[Dataset]:  # fmt: skip
    """Read data sets, each prompt of all together once; raises `UserError` if one cannot be read at all."""
    sources = [source(name) for name in names]
    uniques, refusals = Uniques(), [list[Refusal]() for _ in names]
    for place, one in enumerate(sources):
        for number, raw in raw_rows(one):
            row = parse(number, raw, judging=judging, category=category)
            if isinstance(row, Refusal):
                refusals[place].append(row)
            else:
                uniques.add(replace(row, category=one.label) if category == SET else row, of_set=place)
    found = uniques.found(len(names))
    return [Dataset(source=s, found=f, refusals=r) for s, f, r in zip(sources, found, refusals, strict=True)]


def training_rows(config: FilterConfig, run: RunConfig | None = None) -> tuple[list[Row], list[Row]]:
    """(training rows, held-out rows), ready to be issued; raises `UserError` for data that cannot be used.

    Without `run` nobody looks at the lengths of the prompts.
    """
    sets = load(config.sets, judging=config.judging, category=config.category)
    _count(sets)
    train = _usable(sets, config)
    if config.eval_data:
        held_out = _usable(load([config.eval_data], judging=config.judging), config)
    else:
        held_out = sorted(sorted(train, key=_hash)[: config.eval_rows], key=lambda row: row.number)
    train = _without(train, held_out)
    count = counter(run, config) if run is not None else None
    limit = run.max_prompt_tokens if run is not None else 0
    ready = [_ready(rows, config, count, limit) for rows in (train, held_out)]
    if not ready[0]:
        names = ", ".join(config.sets)
        raise UserError(f"data {names} has no row to train on: see `dapo data check {names}`")
    check_metric(ready[0], config.metric)
    return ready[0], ready[1]


def dressed(row: Row, config: FilterConfig) -> Row:
    """The row with the system prompt and the suffix of the run."""
    chat = list(row.chat)
    if config.suffix:
        last = last_user(chat)
        chat[last] = ChatMessage(role="user", content=chat[last].content + config.suffix)
    if config.system and chat[0].role != "system":
        chat.insert(0, ChatMessage(role="system", content=config.system))
    return replace(row, chat=tuple(chat))


def _count(sets: Sequence[Dataset]) -> None:
    """The rows of all sets as a metric."""
    ROWS.labels("unique").set(sum(len(one.found.rows) for one in sets))
    ROWS.labels("duplicate").set(sum(len(one.found.duplicates) + len(one.found.near) for one in sets))
    ROWS.labels("conflict").set(sum(len(one.found.conflicts) for one in sets))
    ROWS.labels("refused").set(sum(len(one.refusals) for one in sets))


def _ready(rows: Sequence[Row], config: FilterConfig, count: Count | None, limit: int) -> list[Row]:
    """The rows as they are issued, after saying which do not fit."""
    if count is None:
        return [dressed(row, config) for row in rows]
    fit = fitted(rows, lambda row: dressed(row, config), count=count, limit=limit, policy=config.on_long_prompt)
    if fit.too_long and config.on_long_prompt == "fail":
        number, tokens = next(iter(fit.too_long.items()))
        raise UserError(
            f"row {number} has {tokens} tokens after the chat template, [run] max_prompt_tokens is {limit} "
            f"({len(fit.too_long)} such rows in all): raise it, or set [filter] on_long_prompt"
        )
    ROWS.labels("too_long").inc(len(fit.too_long))
    ROWS.labels("shortened").inc(len(fit.shortened))
    for what, numbers in (("prompts too long, left out", list(fit.too_long)), ("prompts shortened", fit.shortened)):
        if numbers:
            log.warning(what, extra={"count": len(numbers), "rows": numbers[:20], "how": config.on_long_prompt})
    return fit.rows


def _hash(row: Row) -> bytes:
    """Of the prompt alone, so that the split depends neither on the order of the rows nor on the answers."""
    text = json.dumps([[message.role, message.content] for message in row.chat])
    return hashlib.sha256(text.encode()).digest()


def _without(train: list[Row], held_out: Sequence[Row]) -> list[Row]:
    """The training rows that nobody holds out, not even nearly the same."""
    held = {fingerprint(row.chat) for row in held_out}
    return [row for row in train if fingerprint(row.chat) not in held] if held else train


def _usable(sets: Sequence[Dataset], config: FilterConfig) -> list[Row]:
    """The rows of all sets, after saying what was left out."""
    for data in sets:
        name = data.source.text
        if data.refusals and config.on_bad_row == "fail":
            first = data.refusals[0]
            raise UserError(
                f"data {name}, row {first.number}: {first.reason} ({len(data.refusals)} such rows in all); mend "
                f'them, see `dapo data check {name}`, or set [filter] on_bad_row = "drop"'
            )
        _warn(data)
    return [row for data in sets for row in data.found.rows]


def _warn(data: Dataset) -> None:
    refused = [refusal.number for refusal in data.refusals]
    found = data.found
    left_out = {"refused": refused, "duplicate": found.duplicates, "nearly duplicate": found.near,
                "conflicting": found.conflicts}  # fmt: skip
    for kind, numbers in left_out.items():
        if numbers:
            extra = {"data": data.source.text, "count": len(numbers), "rows": numbers[:20]}
            log.warning(f"{kind} rows left out", extra=extra)
