"""Lease and hand-over, checked in every interleaving of a small system with deaths at every point: explorer.py."""

import os
from collections import Counter

import pytest

from services.broker.state import Item
from tests.unit.broker import explorer
from tests.unit.broker.explorer import DEATHS, World, explore
from tests.unit.broker.memory_journal import MemoryJournal


def judge(world: World) -> None:
    """What must hold in every state, of what is committed."""
    disk = world.journal.last
    given, settled = disk["given"], Counter(name for _, name in disk["settled"])
    lying = Counter((queue, name) for queue, name, _ in disk["items"].values())
    for queue, name in given:
        if queue == "in":  # in one place: waiting, leased, or handed over
            assert lying["in", name] + settled[name] == 1, (name, lying, settled)
            assert lying["out", name] == settled[name]
        else:
            assert ("in", name) in given
    leased = [seq for seq, _ in disk["leases"].values()]
    assert len(leased) == len(set(leased)), "an item has two holders"
    assert all(seq in disk["items"] for seq in leased)
    if world.clients["giver"].open is None:  # what was acknowledged is there
        acknowledged = world.items[: len(world.items) - len(world.clients["giver"].left)]
        assert all(("in", name) in given for name in acknowledged)
    if not any(action not in DEATHS for action, _ in world.actions(0)):  # all is quiet
        assert {name for queue, name in given if queue == "out"} == set(world.items), "work is left, and nobody acts"


def test_every_interleaving_of_one_item_and_one_death_hands_it_over_once() -> None:
    states, ends = explore(items=("a",), most_deaths=1, judge=judge)
    assert states > 4000
    assert ends > 1  # quiet states, in which the item has arrived


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="takes minutes: HYPOTHESIS_PROFILE=nightly"
)
@pytest.mark.timeout(1200)
def test_every_interleaving_of_two_items_and_one_death_hands_each_over_once() -> None:
    states, ends = explore(items=("a", "b"), most_deaths=1, judge=judge)
    assert states > 40_000
    assert ends > 1


class Forgetful(MemoryJournal):
    """A journal with a bug: what a turn has settled is on disk before what it has given."""

    def settle(self, number: int, item: Item, reason: str) -> None:
        """Commits at once."""
        super().settle(number, item, reason)
        self.commit()


def test_the_explorer_finds_a_hand_over_that_is_not_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "MemoryJournal", Forgetful)
    with pytest.raises(AssertionError):
        explore(items=("a",), most_deaths=1, judge=judge)
