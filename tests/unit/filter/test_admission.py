import pytest

from services.filter.admission import Ledger
from services.filter.state import RECENT, FilterState, dumps, loads


def ledger(state: FilterState | None = None, *, steps: int = 10, eta: int = 1) -> Ledger:
    return Ledger(state or FilterState(), steps=steps, groups_per_batch=2, max_staleness=eta)


def test_a_group_holds_its_place_until_its_step_is_trained() -> None:
    book = ledger()
    for name in "abcd":
        book.issue(name)
    assert book.room == 0  # (1 + 1) * 2 are out
    for name in "ab":
        book.accept(name)
    book.close_batch(["a", "b"], oldest=0)
    assert book.room == 0  # they are being trained, not yet trained
    book.trained(0, version=1)
    assert book.room == 2


def test_a_drop_frees_its_place_at_once() -> None:
    book = ledger()
    for name in "abcd":
        book.issue(name)
    book.reject("b", "all_wrong")
    assert book.room == 1


def test_no_more_is_issued_than_the_steps_left_need() -> None:
    book = ledger(FilterState(next_step=9, version=9), eta=5)
    assert book.room == 2  # one step of two groups, although (5 + 1) * 2 would be allowed


def test_every_group_is_in_exactly_one_state() -> None:
    book = ledger()
    for name in "abcd":
        book.issue(name)
    for name in "abc":
        book.accept(name)
    book.drop("c", "stale")
    book.close_batch(["a", "b"], oldest=0)
    state = book.state
    assert (state.outstanding, state.accepted, state.batched) == ({"d": 0}, set(), {0: ["a", "b"]})
    assert (state.issued, state.num_outstanding, state.num_kept, state.dropped) == (4, 3, 2, {"stale": 1})
    state.check()


def test_a_group_that_is_accepted_again_after_a_restart_counts_once() -> None:
    book = ledger()
    book.issue("a")
    book.accept("a")
    again = ledger(loads(dumps(book.state)))
    again.accept("a")
    assert again.state == book.state


def test_a_kept_group_ends_the_row_of_drops() -> None:
    book = ledger()
    for name in "abc":
        book.issue(name)
    book.reject("a", "all_wrong")
    assert book.state.dropped_in_a_row == 1
    book.accept("b")
    assert book.state.dropped_in_a_row == 0


def test_the_recent_keep_rate_forgets() -> None:
    book = ledger(eta=500)
    for n in range(3 * RECENT):
        book.issue(str(n))
        book.accept(str(n)) if n < RECENT else book.reject(str(n), "all_correct")
    assert book.state.recent_keep_rate == 0
    assert book.state.keep_rate == pytest.approx(1 / 3)


def test_every_transition_is_an_event() -> None:
    book = ledger()
    for name in "ab":
        book.issue(name)
    book.accept("a")
    book.accept("b")
    book.close_batch(["a", "b"], oldest=0)
    book.trained(0, version=1)
    assert book.events == [
        ("issued", {"id": "a", "min_version": 0}),
        ("issued", {"id": "b", "min_version": 0}),
        ("batched", {"step": 0, "ids": ["a", "b"], "oldest": 0}),
        ("settled", {"id": "a", "fate": "trained", "reason": ""}),
        ("settled", {"id": "b", "fate": "trained", "reason": ""}),
    ]


def test_an_account_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(AssertionError, match="5 groups issued, 3 accounted for"):
        FilterState(issued=5, trained=3).check()
    with pytest.raises(AssertionError, match="accepted, but not outstanding"):
        FilterState(accepted={"a"}).check()


def test_a_register_of_an_earlier_version_of_the_state_still_reads() -> None:
    import msgspec

    old = msgspec.msgpack.encode({"next_ordinal": 3, "outstanding": {"0/000002": 0}, "issued": 1})
    state = loads(old)
    state.check()
    assert (state.next_ordinal, state.accepted) == (3, set())
