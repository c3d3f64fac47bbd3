"""Every prompt is visited in every epoch, whatever else is drawn.

An epoch has L = 4 n draws for n prompts, numbered by the ordinal. After draw t (from 0) at least

    due (t + 1) / L

of the prompts that were due at its start have been visited; the rule asks for a prompt not visited yet exactly when
the draw before it left that open. Since due <= n < L one more visit is always enough, and after draw L - 1 all are
visited. What is drawn for other reasons counts as a visit too, so at most a quarter of the draws is forced.
"""

import numpy as np
from numpy.typing import NDArray

from services.filter.sampling.prompts import Prompts
from services.filter.sampling.state import SamplerState

DRAWS_PER_PROMPT = 4


class Epochs:
    """The visits of the running epoch."""

    def __init__(self, state: SamplerState, prompts: Prompts, *, seed: int) -> None:
        self.length = DRAWS_PER_PROMPT * len(prompts)
        self._state = state
        self._prompts = prompts
        self._seed = seed
        self._ordered = -1
        self._order: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def begin(self, epoch: int) -> None:
        """A new epoch: all prompts are due again but those that rest."""
        self._state.epoch = epoch
        self._state.visited = self._state.cursor = 0
        self._state.due = int(np.count_nonzero(self._prompts.due <= epoch))

    def is_behind(self, place: int) -> bool:
        """Whether the draw at this place of the epoch must be a prompt that was not visited yet."""
        return self._state.visited * self.length < self._state.due * (place + 1)

    def next_unvisited(self) -> int:
        """The first prompt in the epoch's order that is due; there must be one."""
        order = self._current_order()
        while self._prompts.due[order[self._state.cursor]] > self._state.epoch:
            self._state.cursor += 1
        return int(order[self._state.cursor])

    def visit(self, row: int) -> None:
        """A prompt is drawn."""
        if self._prompts.due[row] <= self._state.epoch:
            self._state.visited += 1
            self._prompts.postpone(row, self._state.epoch + 1)

    def _current_order(self) -> NDArray[np.int64]:
        if self._ordered != self._state.epoch:
            self._ordered = self._state.epoch
            self._order = np.random.default_rng([self._seed, self._ordered]).permutation(len(self._prompts))
        return self._order
