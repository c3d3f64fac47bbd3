"""What judging an answer usually takes, by verifier: the processor seconds that 97 of 100 answers stay below.

Learnt from the answers as they come (stochastic approximation of a quantile, in logarithms: a step up for each answer
that took longer, a small step down for each that did not; Robbins and Monro, 1951). Inputs that hang give no answer and
teach nothing, so they cannot raise it.
"""

import threading

SHARE = 0.97
FIRST_S = 0.01
LEAST_S, MOST_S = 0.005, 0.5
STEP = 1.1
"""Factor for an answer that took longer than usual."""


class Usual:
    """The estimate for every verifier asked so far. For any thread."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}

    def seconds(self, verifier: str) -> float:
        """Processor seconds that nearly all answers of this verifier stay below."""
        return self._seconds.get(verifier, FIRST_S)

    def learn(self, verifier: str, seconds: float) -> None:
        """An answer of this verifier took so much of the processor."""
        with self._lock:
            known = self.seconds(verifier)
            power = SHARE if seconds > known else SHARE - 1
            self._seconds[verifier] = min(max(known * STEP**power, LEAST_S), MOST_S)
