"""What each role may ask of the broker. A key speaks for one role; without keys there are no roles and no limits.

A rollout that was taken over can spoil answers, not weights: it may neither announce a policy nor make up work, since
what it gives must settle as many leases.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from common.keys import role_of
from common.messages import BATCHES, FEEDBACK, GROUPS, POLICY, PROMPTS, RUN, SCORED, TURNS
from common.protocol import Give, Hello, Take, ToBroker, Watch

FILTER = "filter"
"""The register in which the filter keeps its state."""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """Names of queues and registers; `*` stands for any text."""

    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    watches: tuple[str, ...] = ()
    makes_work: bool = False
    """Whether it may give items that settle none."""
    reads_letters: bool = False
    """Whether it may bring dead letters back or drop them."""


RIGHTS = {
    "rollout": Rights(takes=(PROMPTS, TURNS), gives=(GROUPS, TURNS), watches=(POLICY,)),
    "reward": Rights(takes=(GROUPS,), gives=(SCORED,)),
    "filter": Rights(
        takes=(SCORED, FEEDBACK), gives=(PROMPTS, BATCHES), writes=(FILTER, RUN), watches=("*",), makes_work=True
    ),
    "learner": Rights(
        takes=(BATCHES,), gives=(FEEDBACK, TURNS), writes=(POLICY,), watches=(POLICY, "queue/*"), makes_work=True
    ),
    "supervisor": Rights(watches=(RUN, "queue/*"), reads_letters=True),
    "evaluation": Rights(takes=(SCORED,), gives=(PROMPTS,), writes=(POLICY,), watches=("queue/*",), makes_work=True),
}


def trespass(key: str, message: ToBroker) -> str:
    """What the owner of this key may not do, or nothing. `key` is empty where there are no keys."""
    if not key:
        return ""
    role = role_of(key)
    rights = RIGHTS.get(role, Rights())
    if isinstance(message, Hello):
        return "" if role in RIGHTS and role_of(message.name) == role else f"use the name {message.name}"
    if isinstance(message, Take):
        return _beyond(rights.takes, "take", [message.queue])
    if isinstance(message, Watch):
        return _beyond(rights.watches, "watch", [message.register])
    return _give(rights, message) if isinstance(message, Give) else ""


def _give(rights: Rights, give: Give) -> str:
    if len(give.offers) > len(give.settles) and not rights.makes_work:
        return "give more items than it settles"
    if give.letters and not rights.reads_letters:
        return "touch dead letters"
    return _beyond(rights.gives, "give", [offer.queue for offer in give.offers]) or _beyond(
        rights.writes, "write", [write.register for write in give.writes]
    )


def _beyond(allowed: tuple[str, ...], verb: str, names: list[str]) -> str:
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in allowed):
            return f"{verb} {name}"
    return ""
