import random

from hypothesis import given
from hypothesis import strategies as st

from services.filter.sampling.epochs import Epochs
from services.filter.sampling.prompts import Prompts
from services.filter.sampling.state import SamplerState


@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0, 1))
def test_every_prompt_is_visited_in_every_epoch_whatever_else_is_drawn(rows: int, seed: int, stubborn: float) -> None:
    # whoever draws prefers few rows: with `stubborn` = 1 always row 0
    state, rng = SamplerState(), random.Random(seed)
    epochs = Epochs(state, Prompts(state, rows), seed=seed)
    for epoch in range(3):
        epochs.begin(epoch)
        seen, forced = set(), 0
        for place in range(epochs.length):
            if epochs.is_behind(place):
                row, forced = epochs.next_unvisited(), forced + 1
                assert row not in seen
            else:
                row = 0 if rng.random() < stubborn else rng.randrange(rows)
            epochs.visit(row)
            seen.add(row)
        assert seen == set(range(rows))
        assert forced <= rows


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
