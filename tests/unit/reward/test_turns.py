import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.reward.turns import LEVELS, Evicted, Turn, Turns

WAIT_S = 10.0


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)
    return holds()


@settings(deadline=None, max_examples=60)
@given(
    places=st.integers(1, 3),
    outside=st.integers(0, LEVELS),
    scripts=st.lists(st.lists(st.sampled_from(["give", "pause", "rise"]), max_size=6), min_size=1, max_size=8),
)
def test_never_more_compute_than_there_are_places_and_all_come_to_an_end(
    places: int, outside: int, scripts: list[list[str]]
) -> None:
    lowest = [outside]
    turns, lock, computing, most = Turns(places, lambda: lowest[0]), threading.Lock(), [0], [0]

    def count(change: int) -> None:
        with lock:
            computing[0] += change
            most[0] = max(most[0], computing[0])

    def request(script: list[str]) -> None:
        turn = Turn(level=0)
        try:
            turns.take(turn)
            count(1)
            for step in script:
                if step == "rise":
                    turn.level = min(turn.level + 1, LEVELS - 1)
                    continue
                count(-1)
                if step == "pause":
                    turns.pause(turn)
                else:
                    turns.give(turn)
                    turns.take(turn)
                count(1)
            count(-1)
        except Evicted:
            assert turn.level > outside
        finally:
            turns.end(turn)

    threads = [started(lambda script=script: request(script)) for script in scripts]  # type: ignore[misc]
    time.sleep(0.002)
    lowest[0] = LEVELS  # those outside went away; without a word
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert most[0] <= places
    assert computing[0] == 0


def test_one_of_a_lower_level_goes_first_though_it_came_later() -> None:
    turns, order = Turns(1), []
    first = Turn(0)
    turns.take(first)
    waiting = []
    for level in (2, 1, 0):
        turn = Turn(level)

        def request(turn: Turn = turn) -> None:
            turns.take(turn)
            order.append(turn.level)
            turns.end(turn)

        waiting.append(started(request))
        assert eventually(lambda turn=turn: turn in turns._line)  # type: ignore[misc]
    turns.end(first)
    for thread in waiting:
        thread.join(WAIT_S)
    assert order == [0, 1, 2]


@pytest.mark.parametrize(("outside", "evicted"), [(0, [2]), (1, []), (2, []), (LEVELS, [])])
def test_the_furthest_loses_its_worker_only_if_one_below_all_that_are_stopped_waits_for_it(
    outside: int, evicted: list[int]
) -> None:
    lowest, found = [LEVELS], []
    turns = Turns(1, lambda: lowest[0])
    computing = Turn(0)
    turns.take(computing)
    stopped = [Turn(1), Turn(2)]

    def request(turn: Turn) -> None:
        try:
            turns.pause(turn)
        except Evicted:
            found.append(turn.level)
        turns.end(turn)

    threads = [started(lambda turn=turn: request(turn)) for turn in stopped]  # type: ignore[misc]
    assert eventually(lambda: len(turns._line) == 2)
    lowest[0] = outside
    assert eventually(lambda: found == evicted)
    time.sleep(0.6 if not evicted else 0.0)
    assert found == evicted
    lowest[0] = LEVELS
    turns.end(computing)
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_those_of_a_lower_level_are_wanted_inside_and_outside() -> None:
    lowest = [LEVELS]
    turns = Turns(1, lambda: lowest[0])
    assert not turns.is_wanted(LEVELS - 1)
    lowest[0] = 1
    assert turns.is_wanted(2)
    assert not turns.is_wanted(1)
