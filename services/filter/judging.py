"""Who judges a row, and what its reward is made of: what the row says, else [filter], else what its data source needs.

    verifier   column `verifier`  >  [filter] verifiers, by a field of the row  >  [filter] verifier  >  the data source
    terms      [filter] terms, changed and added to by column `terms`
    metadata   column `metadata`, an object: choices, a schema, references ... (docs/rewards.md)

    {"prompt": ..., "answer": ..., "terms": {"repetition": 0.5, "form": {"verifier": "regex", "gold": "^<think>"}}}

Python code may only be named by the configuration: a data set that could would run it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from common.errors import UserError
from common.messages import PYTHON, VERIFIERS, Task, Term
from services.filter.values import UnusableError, nested

ACCURACY = "accuracy"
RULES = ("task", "overlong", "length", "repetition")
"""The terms that need no verifier: services/reward/shaping.py."""
WITHOUT_GOLD = ("judge", "http")
GOLD_IN_METADATA = ("json_schema", "reasoning_gym", "bleu", "chrf", "rouge")
"""Verifiers that may do without an answer, or with metadata in its place."""


class TermConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A term with a verifier of its own."""

    verifier: str
    weight: float = 1.0
    gold: str = ""
    metadata: dict[str, Any] = {}


TermTable = Mapping[str, float | TermConfig]


class HasTask(Protocol):
    """A row."""

    @property
    def number(self) -> int:
        """Place in its file."""

    @property
    def task(self) -> Task:
        """What it is judged by."""


@dataclass(frozen=True, kw_only=True)
class Judging:
    """What [filter] says of rows that say nothing."""

    verifier: str = ""
    verifiers: Mapping[str, str] = field(default_factory=dict)
    by: str = "data_source"
    terms: TermTable = field(default_factory=dict)

    @property
    def named(self) -> list[str]:
        """Every verifier that the configuration names."""
        own = [term.verifier for term in self.terms.values() if isinstance(term, TermConfig)]
        return [name for name in (self.verifier, *self.verifiers.values(), *own) if name]

    def check(self) -> None:
        """Raise `ValueError` for what no row could be judged by."""
        for name in self.named:
            if not _is_known(name):
                raise ValueError(f"verifier `{name}` is unknown; known are {_known()}")
        try:
            _merged({}, self.terms)
        except UnusableError as error:
            raise ValueError(str(error)) from None


UNSAID = Judging()
"""A configuration that says nothing."""


def chosen_verifier(raw: Mapping[str, Any], judging: Judging) -> str:
    """The verifier that the row or the configuration names; empty if neither does."""
    own = str(raw.get("verifier") or "")
    if own:
        check_name(own, judging)
        return own
    return judging.verifiers.get(str(nested(raw, judging.by)), "") or judging.verifier


def check_name(name: str, judging: Judging) -> None:
    """Refuse a name that a row must not use."""
    if not _is_known(name):
        raise UnusableError(f"verifier `{name}` is unknown; known are {_known()}")
    if name.startswith(PYTHON) and name not in judging.named:
        raise UnusableError(f"it names Python code, `{name}`, which only a configuration may: name it in [filter] too")


def terms(raw: Mapping[str, Any], judging: Judging) -> list[Term]:
    """The terms that the configuration and the row ask for."""
    value = _object(raw.get("terms"), "terms")
    try:
        own = msgspec.convert({key: _filled(term) for key, term in value.items()}, dict[str, float | TermConfig])
    except msgspec.ValidationError as error:
        raise UnusableError(f"`terms` cannot be read: {error}") from None
    for term in own.values():
        if isinstance(term, TermConfig):
            check_name(term.verifier, judging)
    return _merged(judging.terms, own) if own or judging.terms else []


def metadata(raw: Mapping[str, Any]) -> str:
    """The column `metadata` as JSON text; empty if there is none, or if it is something else."""
    value = raw.get("metadata")
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)
    return value if isinstance(value, str) and value.lstrip().startswith("{") else ""


def can_be_judged(task: Task) -> bool:
    """Whether there is something to judge by."""
    if task.gold or task.tests or task.verifier in WITHOUT_GOLD or task.verifier.startswith(PYTHON):
        return True
    return task.verifier in GOLD_IN_METADATA and bool(task.metadata)


def metrics(task: Task) -> list[str]:
    """The names that groups of this task can be judged by."""
    return [ACCURACY, *(term.name for term in task.terms if term.verifier)]


def check_metric(rows: Iterable[HasTask], metric: str) -> None:
    """Raise `UserError` for the first row whose reward does not give the metric."""
    for row in rows:
        if metric not in metrics(row.task):
            hint = " (a term that no verifier gives says nothing of the answer)" if metric in RULES else ""
            raise UserError(
                f"[filter] metric `{metric}` is given by no reward of row {row.number}{hint}; it gives "
                f"{', '.join(metrics(row.task))}: choose one of them, or add a term of that name with a verifier"
            )


def _merged(default: TermTable, own: TermTable) -> list[Term]:
    """Terms by name; a number changes the weight of a term, or asks for a rule."""
    found: dict[str, Term] = {}
    for name, value in (*default.items(), *own.items()):
        found[name] = _term(name, value, found.get(name))
    return list(found.values())


def _term(name: str, value: float | TermConfig, before: Term | None) -> Term:
    if isinstance(value, TermConfig):
        if name in (*RULES, ACCURACY) or not name:
            raise UnusableError(f"term `{name}` has a meaning of its own: give another name to one with a verifier")
        extra = json.dumps(value.metadata) if value.metadata else ""
        found = Term(name=name, weight=value.weight, verifier=value.verifier, gold=value.gold, metadata=extra)
    elif before is not None:
        found = msgspec.structs.replace(before, weight=float(value))
    elif name in RULES:
        found = Term(name=name, weight=float(value))
    else:
        raise UnusableError(f"term `{name}` needs a verifier; those without one are {', '.join(RULES)}")
    if not math.isfinite(found.weight):
        raise UnusableError(f"term `{name}` has no finite weight")
    return found


def _filled(value: Any) -> Any:
    """Without nulls: Parquet gives every object every key."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _object(value: Any, column: str) -> dict[str, Any]:
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError:
            raise UnusableError(f"`{column}` is not JSON") from None
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise UnusableError(f"`{column}` is not an object")
    return {str(key): item for key, item in value.items() if item is not None}


def _is_known(name: str) -> bool:
    return name in VERIFIERS or name.startswith(PYTHON)


def _known(more: Sequence[str] = (f"{PYTHON}package.module:function",)) -> str:
    return ", ".join((*VERIFIERS, *more))
