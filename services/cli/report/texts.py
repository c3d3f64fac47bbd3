"""Sample texts with rewards and verdicts: best, worst, truncated, errors; from the start and the end of the run.

Texts come from a model and from data: everything is escaped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from services.cli.report.curves import names
from services.cli.report.record import Record
from services.cli.report.scale import short
from services.cli.snapshot import Row

SHOWN = 4
"""Texts in each list."""


@dataclass(frozen=True)
class Text:
    """One answer, and the group that it is from."""

    row: Row
    answer: dict[str, Any]

    @property
    def reward(self) -> float:
        """The shaped reward; only of answers that have one."""
        return float(self.answer["reward"])


Choice = Callable[[Sequence[Text]], Sequence[Text]]


def best(texts: Sequence[Text]) -> list[Text]:
    """The highest rewards, the newest first among equals."""
    return _one_a_group(sorted(_judged(texts), key=lambda t: (-t.reward, -t.row["step"])))


def worst(texts: Sequence[Text]) -> list[Text]:
    """Wrong ones with the lowest rewards, the newest first among equals; not those that were cut."""
    whole = [t for t in _judged(texts) if t.answer["finish"] != "length" and t.answer["verdict"] == "wrong"]
    return _one_a_group(sorted(whole, key=lambda t: (t.reward, -t.row["step"])))


def truncated(texts: Sequence[Text]) -> list[Text]:
    """Cut at the length limit, the newest first."""
    return _one_a_group(_newest(text for text in texts if text.answer["finish"] == "length"))


def errors(texts: Sequence[Text]) -> list[Text]:
    """Those that no verifier could judge, the newest first."""
    return _one_a_group(_newest(text for text in texts if text.answer["verdict"] == "error"))


def first_held_out(texts: Sequence[Text]) -> list[Text]:
    """The first answers to held-out rows."""
    return _one_a_group(text for text in texts if text.row["kind"] == "held-out")


def last_held_out(texts: Sequence[Text]) -> list[Text]:
    """The last answers to held-out rows."""
    return _one_a_group(_newest(text for text in texts if text.row["kind"] == "held-out"))


LISTS: tuple[tuple[str, str, Choice], ...] = (
    ("Best", "the highest rewards, the newest first", best),
    ("Worst", "the lowest rewards, the newest first", worst),
    ("Truncated", "cut at the length limit", truncated),
    ("Errors", "no verifier could judge them: they are no part of any reward", errors),
    ("Held-out rows at the start", "answers of the first evaluation", first_held_out),
    ("Held-out rows at the end", "answers of the last evaluations", last_held_out),
)


def section(records: Sequence[Record]) -> str:
    """Every list, of one run or of two side by side."""
    return "".join(_list(title, what, choose, records, is_open=title in ("Best", "Worst"))
                   for title, what, choose in LISTS)  # fmt: skip


def texts_of(record: Record) -> list[Text]:
    """Every answer of samples.jsonl."""
    return [Text(row, answer) for row in record.excerpts for answer in row["answers"]]


def _list(title: str, what: str, choose: Choice, records: Sequence[Record], *, is_open: bool) -> str:
    columns = [list(choose(texts_of(record))) for record in records]
    heads = names(records) if len(records) > 1 else [""]
    inner = "".join(_column(head, column) for head, column in zip(heads, columns, strict=True))
    count = sum(map(len, columns))
    return (
        f"<details{' open' if is_open and count else ''}><summary>{escape(title)} "
        f"<small>{count}, {escape(what)}</small></summary><div class=columns>{inner}</div></details>"
    )


def _column(head: str, texts: Sequence[Text]) -> str:
    title = f"<h4>{escape(head)}</h4>" if head else ""
    return f"<div>{title}{''.join(map(_card, texts)) or '<p class=note>none</p>'}</div>"


def _card(text: Text) -> str:
    row, answer = text.row, text.answer
    verdict = str(answer["verdict"])
    badge = f'<b class="badge {escape(verdict, quote=True)}">{escape(verdict)}</b>'
    head = f"{badge} <span>reward {_reward(answer)}</span> <span>{answer['tokens']} tokens</span> {_cut(answer)}"
    cause = (
        f"<p class='cause {escape(verdict, quote=True)}'>{escape(str(answer['cause']))}</p>"
        if answer.get("cause")
        else ""
    )
    gold = f"<p class=gold>expected <code>{escape(str(row['gold']))}</code></p>" if row.get("gold") else ""
    return (
        f"<article><header>{head}</header><pre class=prompt>{escape(row['prompt'])}</pre>"
        f"<pre class=answer>{escape(answer['text']) or '(empty)'}</pre>{gold}{cause}"
        f"<footer>{_origin(row, answer)}</footer></article>"
    )


def _cut(answer: dict[str, Any]) -> str:
    return "<b class='badge cut'>truncated</b>" if answer["finish"] == "length" else ""


def _reward(answer: dict[str, Any]) -> str:
    if answer["reward"] is None:
        return "none"
    terms = [f"{escape(name)} {short(value)}" for name, value in answer["terms"].items() if value]
    return short(answer["reward"]) + (f" = {' + '.join(terms)}" if len(terms) > 1 else "")


def _origin(row: Row, answer: dict[str, Any]) -> str:
    oldest, newest = answer["versions"]
    wrote = f"version {oldest}" if oldest == newest else f"versions {oldest} to {newest}"
    fate = f"{row['kind']}: {row['reason']}" if row["reason"] else row["kind"]
    right = f"{row['num_correct']} of {row['num_answers']} right"
    parts = [f"group {row['group']}", row["source"], fate, right, f"step {row['step']}", wrote]
    return " &middot; ".join(escape(str(part)) for part in parts if part)


def _judged(texts: Iterable[Text]) -> list[Text]:
    return [text for text in texts if text.answer["reward"] is not None]


def _newest(texts: Iterable[Text]) -> list[Text]:
    return sorted(texts, key=lambda text: -text.row["step"])


def _one_a_group(texts: Iterable[Text]) -> list[Text]:
    """The first `SHOWN`, each of another group."""
    seen: dict[str, Text] = {}
    for text in texts:
        seen.setdefault(text.row["group"], text)
    return list(seen.values())[:SHOWN]
