"""The rollouts' side: which weights each had loaded, and which version wrote each token.

An id may be sampled twice: its first holder lost the lease, or died before it could give the group. Only one of the
two took effect, and the history does not say which, so an id has one or more samplings.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from services.cli.audit.reading import Record, Stream

Span = Sequence[int]
"""version, start, end"""


@dataclass(kw_only=True)
class Samplings:
    """What all rollouts sampled."""

    versions: dict[str, list[set[int]]] = field(default_factory=dict)
    """By id, per sampling: the versions that wrote its tokens."""
    loaded: dict[int, set[str]] = field(default_factory=dict)
    """Digests under which each version was loaded."""


def read_samplings(streams: Iterable[Stream]) -> Samplings:
    """Collect the samplings of every group and the versions loaded."""
    samplings = Samplings()
    for stream in streams:
        for record in stream.records:
            if record["event"] == "sampled":
                samplings.versions.setdefault(record["id"], []).append(_versions(record))
            elif record["event"] == "loaded":
                samplings.loaded.setdefault(record["version"], set()).add(record["digest"])
    return samplings


def check_streams(streams: Iterable[Stream]) -> Iterator[str]:
    """Versions only grow in a process and in a sample, and a sample names only versions that its process loaded."""
    for stream in streams:
        loads = [record["version"] for record in stream.records if record["event"] == "loaded"]
        for before, after in itertools.pairwise(loads):
            if after <= before:
                yield f"version_shrinks: {stream.name} loaded version {after} after {before}"
        known = set(loads)
        for record in stream.records:
            if record["event"] == "sampled":
                yield from _check_spans(stream.name, record)
                # The load of a newer version is written down after the engine has it: a sample that ended in between,
                # just before the process died, may name one version more than the last that was written down.
                strange = {v for v in _versions(record) - known if not loads or v <= loads[-1]}
                if strange:
                    yield f"span_not_loaded: {record['id']}: {stream.name} never loaded version {min(strange)}"


def _check_spans(process: str, record: Record) -> Iterator[str]:
    for spans in record["spans"]:
        at, version = 0, -1
        for span_version, start, end in spans:
            if start != at or end < start:
                yield f"span_gap: {record['id']}: {process} wrote spans that do not join at token {at}"
            if span_version < version:
                yield f"version_shrinks: {record['id']}: version {span_version} after {version} within a sample"
            at, version = end, max(version, span_version)


def _versions(record: Record) -> set[int]:
    """The versions that wrote at least one token."""
    return {version for spans in record["spans"] for version, start, end in spans if end > start}
