"""Invariants 1 to 4 of a run, from its three ledgers and its queues.

    1  issued = trained + settled + dead + left in a queue          fates
    2  no group is trained twice in the surviving lineage           training
    3  no trained token is older than max_staleness                 ages
    4  versions only grow; a sample names the version that wrote it versions

Each violation is `KIND: sentence`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from services.cli.audit.ledger import Ledger, is_eval
from services.cli.audit.lineage import Lineage
from services.cli.audit.reading import TRAIN_QUEUES, Limits, Queues
from services.cli.audit.sampling import Samplings

DEAD = "dead"
"""The filter's reason for dropping a dead letter."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that is judged."""

    ledger: Ledger
    lineage: Lineage
    samplings: Samplings
    queues: Queues
    limits: Limits

    @cached_property
    def trained(self) -> Counter[str]:
        """How often each id was trained in the surviving lineage."""
        return Counter(name for ids in self.lineage.ids.values() for name in ids)

    @cached_property
    def queued(self) -> Counter[str]:
        """In how many places each id lies before its batch."""
        return Counter(name for queue in TRAIN_QUEUES for name in self.queues.of(queue) if not is_eval(name))

    @cached_property
    def waiting(self) -> set[str]:
        """Ids in batches that the learner has not settled."""
        return {name for step in self.queues.of("batches") for name in self.ledger.batches.get(int(step), [])}

    @cached_property
    def dead(self) -> set[str]:
        """Dead letters, whether or not the filter has noticed; also those that a person has dropped or retried."""
        lying = {name for queue in TRAIN_QUEUES for name in self.queues.dead.get(queue, [])}
        return {name for name in lying | self.queues.once_dead if not is_eval(name)}

    @cached_property
    def left(self) -> set[str]:
        """Issued ids without an end that lie in a queue."""
        return (set(self.queued) | self.waiting) & self._open

    @cached_property
    def lost(self) -> set[str]:
        """Issued ids without an end that lie nowhere."""
        return self._open - self.left

    @cached_property
    def _open(self) -> set[str]:
        return set(self.ledger.times_issued) - set(self.trained) - set(self.ledger.dropped) - self.dead


def check_fates(case: Case) -> Iterator[str]:
    """Invariant 1."""
    ended = set(case.trained) | set(case.ledger.dropped)
    for name in _repeated(case.ledger.times_issued):
        yield f"issued_twice: {name} was issued {case.ledger.times_issued[name]} times"
    for name in sorted((ended | set(case.queued) | case.dead) - set(case.ledger.times_issued)):
        yield f"not_issued: {name} was never issued"
    for name in sorted(case.lost):
        yield f"lost: {name} was issued, has no end and lies in no queue"
    yield from _check_drops(case)
    for name in sorted((set(case.queued) & ended) - case.queues.retried):
        yield f"still_queued: {name} has an end, but lies in a queue"
    for name in _repeated(case.queued):
        yield f"two_places: {name} lies in {case.queued[name]} queues"


def _check_drops(case: Case) -> Iterator[str]:
    for name, reasons in case.ledger.dropped.items():
        ends = [*reasons, *(["trained"] if name in case.trained else [])]
        if len(ends) > 1:
            yield f"two_fates: {name} ended {len(ends)} times ({', '.join(ends)})"
        if DEAD in reasons and name not in case.dead:
            yield f"not_dead: {name} was dropped as a dead letter, but the broker has none of that id"


def check_training(case: Case) -> Iterator[str]:
    """Invariant 2, and that the learner trained what the filter had put into each batch."""
    for name in _repeated(case.trained):
        yield f"trained_twice: {name} was trained {case.trained[name]} times"
    for name in _repeated(case.ledger.times_batched):
        yield f"batched_twice: {name} is in {case.ledger.times_batched[name]} batches"
    for name in sorted(case.ledger.acknowledged - set(case.trained) - case.waiting):
        yield f"not_trained: {name} counts as trained for the filter, but the learner has not trained it"
    steps = sorted(case.lineage.ids)
    if steps != list(range(len(steps))):
        yield f"missing_step: {len(steps)} steps were trained, the last is {steps[-1]}"
    for step, ids in case.lineage.ids.items():
        if case.ledger.batches.get(step) != ids:
            yield f"batch_differs: step {step} trained other groups than batch {step} contains"


def check_ages(case: Case) -> Iterator[str]:
    """Invariant 3, by the rollouts' spans and by what the learner saw."""
    limit = case.limits.max_staleness
    for step, oldest in case.lineage.oldest.items():
        if step - oldest > limit:
            yield f"too_old: step {step} trained a token of version {oldest}, {step - oldest} versions old"
        for name in case.lineage.ids[step]:
            if name not in case.samplings.versions:
                yield f"not_sampled: {name} was trained in step {step}, but nobody sampled it"
            elif (age := _age(case, step, name)) > limit:
                yield f"too_old: {name} was trained in step {step} with a token {age} versions old"


def check_versions(case: Case) -> Iterator[str]:
    """Invariant 4 between processes: loaded weights are those published; no token is older than its prompt allows."""
    for version, digests in case.samplings.loaded.items():
        if not digests <= case.lineage.digests.get(version, set()):
            yield f"wrong_digest: version {version} was loaded with a digest that was never published"
    for name, samplings in case.samplings.versions.items():
        bound = case.ledger.min_version.get(name, 0)
        if all(versions and min(versions) < bound for versions in samplings):
            yield f"before_min_version: {name} was sampled by a version before {bound}"
    future = max(case.lineage.digests, default=-1)
    for name, samplings in case.samplings.versions.items():
        if any(versions and max(versions) > future for versions in samplings):
            yield f"not_published: {name} names a version after {future}, the last that was published"


def greatest_age(case: Case) -> int:
    """The greatest age of a trained token, in versions."""
    seen = [step - oldest for step, oldest in case.lineage.oldest.items()]
    computed = [_age(case, step, name) for step, ids in case.lineage.ids.items() for name in ids]
    return max([*seen, *computed], default=0)


def counts(case: Case) -> dict[str, Any]:
    """The account of the run: issued = trained + filtered + dead + left + lost. The first reason of a drop counts."""
    reasons = Counter(reasons[0] for reasons in case.ledger.dropped.values())
    noticed_dead = reasons.pop(DEAD, 0)
    return {
        "issued": len(case.ledger.times_issued),
        "trained": len(case.trained),
        "filtered": dict(sorted(reasons.items())),
        "dead": noticed_dead + len(case.dead - set(case.ledger.dropped) - set(case.trained)),
        "left": len(case.left),
        "lost": len(case.lost),
        "trained_twice": len(_repeated(case.trained)),
        "greatest_age": greatest_age(case),
        "max_staleness": case.limits.max_staleness,
        "steps": len(case.lineage.ids),
        "steps_trained_again": case.lineage.retrained,
        "versions": len(case.lineage.digests),
        "versions_published_differently": sum(len(digests) > 1 for digests in case.lineage.digests.values()),
    }


def _repeated(times: Counter[str]) -> list[str]:
    return sorted(name for name, count in times.items() if count > 1)


def _age(case: Case, step: int, name: str) -> int:
    """Of the oldest token that may have been trained; of several samplings the one that speaks for the run."""
    samplings = case.samplings.versions.get(name, [])
    ages = [max((step - v for v in versions if _may_train(case, step, v)), default=0) for versions in samplings]
    return min(ages, default=0)


def _may_train(case: Case, step: int, version: int) -> bool:
    return not case.limits.masks or step - version <= case.limits.max_staleness
