"""Verdicts that were given before: the same text to the same task is judged once.

    digest of (verifier, gold, tests, metadata, data source, output)  ->  verdict        the newest `size` of them

Only for verifiers whose verdict depends on nothing else, and only what they said of the text: no error, and nothing
that ended at a limit.
"""

import hashlib
from collections import OrderedDict

import msgspec
from prometheus_client import Counter

from common.messages import Task, Verdict
from services.reward.verifiers import CODE, FUNCTIONS, MEMORY, TIMEOUT

HITS = Counter("dapo_reward_cache_hits_total", "Verdicts that had been given before.", ["verifier"])
PURE = frozenset(FUNCTIONS) - {CODE}

Key = bytes


class VerdictCache:
    """Least recently used verdicts go first."""

    def __init__(self, size: int) -> None:
        """Keep up to `size` verdicts; 0: none."""
        self._size = size
        self._verdicts: OrderedDict[Key, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def key(self, output: str, task: Task) -> Key | None:
        """What a verdict is known by; None for what is not kept."""
        if not self._size or task.verifier not in PURE:
            return None
        facts = (task.verifier, task.gold, task.tests, task.metadata, task.data_source, output)
        return hashlib.blake2b(msgspec.msgpack.encode(facts), digest_size=16).digest()

    def find(self, key: Key | None) -> Verdict | None:
        """The verdict given before, which now cost no time."""
        if key is None or key not in self._verdicts:
            return None
        self._verdicts.move_to_end(key)
        return self._verdicts[key]

    def keep(self, key: Key | None, verdict: Verdict) -> None:
        """Remember a verdict."""
        if key is None or verdict.verdict == "error" or verdict.reason.startswith((TIMEOUT, MEMORY)):
            return
        self._verdicts[key] = msgspec.structs.replace(verdict, seconds=0.0)
        if len(self._verdicts) > self._size:
            self._verdicts.popitem(last=False)
