"""The learner's side: what the surviving policy was trained on.

`resumed {step}` throws away everything from `step` on: the weights that saw it are gone. What was trained after it
takes its place. What remains at the end is the lineage of the policy that survived.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.cli.audit.reading import Record, Stream


@dataclass(kw_only=True)
class Lineage:
    """Steps of the surviving policy."""

    ids: dict[int, list[str]] = field(default_factory=dict)
    """Groups trained, by step."""
    oldest: dict[int, int] = field(default_factory=dict)
    """Oldest version of a trained token, by step, as the learner saw it."""
    digests: dict[int, set[str]] = field(default_factory=dict)
    """Of every version ever published; a version may be published again after a resume."""
    retrained: int = 0
    """Steps that were thrown away."""


def read_lineage(streams: Iterable[Stream]) -> Lineage:
    """Follow all incarnations of the learner."""
    lineage = Lineage()
    for stream in streams:
        for record in stream.records:
            _follow(lineage, record)
    return lineage


def _follow(lineage: Lineage, record: Record) -> None:
    if record["event"] == "resumed":
        gone = [step for step in lineage.ids if step >= record["step"]]
        lineage.retrained += len(gone)
        for step in gone:
            del lineage.ids[step], lineage.oldest[step]
    elif record["event"] == "trained":
        lineage.ids[record["step"]] = list(record["ids"])
        lineage.oldest[record["step"]] = record["oldest"]
    elif record["event"] == "published":
        lineage.digests.setdefault(record["version"], set()).add(record["digest"])
