"""Admission and earliest-deadline-first batches: no token older than eta is trained, none is dropped for its age.

Symbols: B groups per batch, eta = max_staleness, s_g the version published when group g was issued (a lower bound for
every token of g), k the next batch to close. A group is outstanding from its issue until the version of its step is
published or it is dropped. docs/ages-and-batches.md has the proof.

    admit     while |outstanding, batches in training included| < (eta + 1) B
    deadline  g must be in batch s_g + eta at the latest
    close     batch k with S  iff  for every step j >= k:  |{g not in S : s_g + eta <= j}| <= (j - k) B
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from common.messages import Scored


class Versions(NamedTuple):
    """The oldest and the newest version that sampled a token of a group; its age is that of the oldest."""

    oldest: int
    newest: int


def versions_of(scored: Scored) -> Versions:
    """As the engine reports them; a group without a token (its prompt did not fit) is as old as its prompt."""
    spans = [span for sample in scored.group.samples for span in sample.spans]
    wrote = [span.version for span in spans if span.end > span.start] or [scored.group.prompt.min_version]
    return Versions(min(wrote), max(wrote))


def admissible(*, num_outstanding: int, groups_per_batch: int, max_staleness: int) -> int:
    """How many prompts may be issued now."""
    return max(0, (max_staleness + 1) * groups_per_batch - num_outstanding)


def earliest_first(accepted: Mapping[str, int], order: Callable[[str], int], count: int) -> list[str]:
    """The `count` accepted groups with the earliest deadlines, then the earliest issued."""
    return sorted(accepted, key=lambda group: (accepted[group], order(group)))[:count]


def may_close(left: Iterable[int], *, step: int, groups_per_batch: int, max_staleness: int) -> bool:
    """Whether every group left out, given by its s, can still meet its deadline after batch `step` closes."""
    deadlines = sorted(s + max_staleness for s in left)
    return all(
        place + 1 <= max(0, deadline - step) * groups_per_batch
        for place, deadline in enumerate(deadlines)
        if place + 1 == len(deadlines) or deadlines[place + 1] != deadline
    )


def chosen_batch(
    outstanding: Mapping[str, int],
    accepted: Collection[str],
    order: Callable[[str], int],
    *,
    step: int,
    groups_per_batch: int,
    max_staleness: int,
    wait: bool,
) -> list[str] | None:
    """The groups of batch `step` in order of issue, or None if it may not close yet.

    `outstanding` maps every group that is in no batch to its s; `accepted` are those of them that are ready to train;
    `order` numbers the groups as they were issued. Without `wait` a batch closes as soon as B groups are ready.
    """
    if len(accepted) < groups_per_batch:
        return None
    chosen = earliest_first({group: outstanding[group] for group in accepted}, order, groups_per_batch)
    taken = set(chosen)
    left = [s for group, s in outstanding.items() if group not in taken]
    if wait and not may_close(left, step=step, groups_per_batch=groups_per_batch, max_staleness=max_staleness):
        return None
    return sorted(chosen, key=order)
