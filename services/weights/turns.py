"""Whose question is answered next, and when the line may carry more: rollouts in turn, a bucket of bytes that fills."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from common.chunks import MAX_QUESTIONS

Q = TypeVar("Q")


class Turns(Generic[Q]):
    """Questions that wait, by peer; each peer in turn gets one answer."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[bytes, deque[Q]] = OrderedDict()

    def add(self, peer: bytes, question: Q) -> bool:
        """Remember a question; False if the peer has too many."""
        queue = self._waiting.setdefault(peer, deque())
        if len(queue) >= MAX_QUESTIONS:
            return False
        queue.append(question)
        return True

    def next(self) -> tuple[bytes, Q]:
        """The next to be answered; raises `KeyError` if there is none."""
        peer, queue = self._waiting.popitem(last=False)
        question = queue.popleft()
        if queue:
            self._waiting[peer] = queue
        return peer, question

    def forget(self, peer: bytes) -> None:
        """The peer cannot be reached."""
        self._waiting.pop(peer, None)

    def __bool__(self) -> bool:
        return bool(self._waiting)


class Bucket:
    """At most `rate` bytes a second over any longer time, in bursts of `burst`; no limit if `rate` is 0."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._level = float(burst)
        self._at = now()

    def wait_s(self) -> float:
        """Seconds until something may be sent."""
        if not self._rate:
            return 0.0
        now = self._now()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, -self._level / self._rate)

    def spend(self, num_bytes: int) -> None:
        """Something was sent; the level may go below zero, which is waited for."""
        self._level -= num_bytes
