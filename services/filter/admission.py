"""The ledger of groups: which are out, since which version, and how each one ended.

    issue -> dispatched -> accepted -> batched -> trained
                  └────────────┴──> dropped (reason)

A group counts against the bound from its issue until its step is published or it is dropped; a drop frees its place at
once, which is what makes the refill exact. Every change is an event of the history.
"""

from collections.abc import Sequence
from typing import Any

from services.filter.ages import admissible
from services.filter.state import RECENT, FilterState

Event = tuple[str, dict[str, Any]]


class Ledger:
    """Changes the groups of a `FilterState`, one transition at a time."""

    def __init__(self, state: FilterState, *, steps: int, groups_per_batch: int, max_staleness: int) -> None:
        self.state = state
        self.events: list[Event] = []
        """Since the caller last took them."""
        self._steps = steps
        self._groups_per_batch = groups_per_batch
        self._max_staleness = max_staleness

    @property
    def room(self) -> int:
        """Groups that may be issued now: what the bound on age allows, and never more than the steps left need."""
        steps_left = self._steps - self.state.next_step
        needed = steps_left * self._groups_per_batch - len(self.state.outstanding)
        allowed = admissible(
            num_outstanding=self.state.num_outstanding,
            groups_per_batch=self._groups_per_batch,
            max_staleness=self._max_staleness,
        )
        return max(0, min(needed, allowed))

    def issue(self, group: str) -> None:
        """A prompt goes out under the newest published version: s of the group."""
        self.state.outstanding[group] = self.state.version
        self.state.issued += 1
        self.events.append(("issued", {"id": group, "min_version": self.state.version}))

    def accept(self, group: str) -> None:
        """A group came back and is kept; again after a restart, which changes nothing."""
        if group not in self.state.accepted:
            self.state.accepted.add(group)
            self.state.dropped_in_a_row = 0
            self._judged(kept=True)

    def reject(self, group: str, reason: str) -> None:
        """A group came back and teaches nothing."""
        self._judged(kept=False)
        self.drop(group, reason)

    def drop(self, group: str, reason: str) -> None:
        """A group ends without being trained."""
        del self.state.outstanding[group]
        self.state.accepted.discard(group)
        self.state.dropped[reason] = self.state.dropped.get(reason, 0) + 1
        self.state.dropped_in_a_row += 1
        self._settled(group, "dropped", reason)

    def close_batch(self, groups: Sequence[str], *, oldest: int) -> None:
        """The next batch consists of these groups; `oldest` is the oldest version of a token in them."""
        for group in groups:
            del self.state.outstanding[group]
        self.state.accepted.difference_update(groups)
        self.state.batched[self.state.next_step] = list(groups)
        self.events.append(("batched", {"step": self.state.next_step, "ids": list(groups), "oldest": oldest}))
        self.state.next_step += 1

    def trained(self, step: int, *, version: int) -> None:
        """A batch is trained and `version` published; said twice it changes nothing."""
        groups = self.state.batched.pop(step, [])
        self.state.trained += len(groups)
        self.state.version = max(self.state.version, version)
        for group in groups:
            self._settled(group, "trained", "")

    def _judged(self, *, kept: bool) -> None:
        self.state.recent = [*self.state.recent[-RECENT + 1 :], int(kept)]

    def _settled(self, group: str, fate: str, reason: str) -> None:
        self.events.append(("settled", {"id": group, "fate": fate, "reason": reason}))
