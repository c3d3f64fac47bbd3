import random

from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.epochs import Epochs
from services.filter.sampling.prompts import Prompts
from services.filter.sampling.state import SamplerState


def visited(kind: type[Epochs], *, rows: int, seed: int, stubborn: float) -> list[set[int]]:
    """The rows drawn in three epochs by one who prefers few of them: with `stubborn` = 1 always row 0."""
    state, rng, found = SamplerState(), random.Random(seed), list[set[int]]()
    epochs = kind(state, Prompts(state, rows), seed=seed)
    for epoch in range(3):
        epochs.begin(epoch)
        seen = set[int]()
        for place in range(epochs.length):
            row = 0 if rng.random() < stubborn else rng.randrange(rows)
            if epochs.is_behind(place):
                row = epochs.next_unvisited()
                assert row not in seen
            epochs.visit(row)
            seen.add(row)
        found.append(seen)
    return found


@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0, 1))
def test_every_prompt_is_visited_in_every_epoch_whatever_else_is_drawn(rows: int, seed: int, stubborn: float) -> None:
    assert visited(Epochs, rows=rows, seed=seed, stubborn=stubborn) == [set(range(rows))] * 3


class OneLate(Epochs):
    """Lets the pace slip by one visit."""

    def is_behind(self, place: int) -> bool:
        return super().is_behind(place - self.length // len(self._prompts))


def test_a_pace_that_slips_by_one_visit_is_caught() -> None:
    assert visited(OneLate, rows=10, seed=0, stubborn=1.0) != [set(range(10))] * 3


def test_a_prompt_that_rests_is_not_due_until_its_epoch() -> None:
    state = SamplerState()
    prompts = Prompts(state, 3)
    epochs = Epochs(state, prompts, seed=0)
    prompts.postpone(1, 2)
    for epoch, due in ((0, {0, 2}), (1, {0, 2}), (2, {0, 1, 2})):
        epochs.begin(epoch)
        seen = set()
        for place in range(epochs.length):
            if epochs.is_behind(place):
                seen.add(epochs.next_unvisited())
                epochs.visit(max(seen, key=lambda row: prompts.due[row] <= epoch))
        assert (state.due, seen) == (len(due), due)


def test_the_visits_are_spread_over_the_epoch() -> None:
    state = SamplerState()
    epochs = Epochs(state, Prompts(state, 25), seed=0)
    epochs.begin(0)
    forced = []
    for place in range(epochs.length):
        if epochs.is_behind(place):
            epochs.visit(epochs.next_unvisited())
            forced.append(place)
    assert forced == list(range(0, 100, 4))  # one in four draws, none bunched at the end
