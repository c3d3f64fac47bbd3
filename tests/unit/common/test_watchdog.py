"""A run that gets nowhere is reported with what it waits for, and ended."""

import logging

import msgspec
import pytest

from common.client import Watched
from common.protocol import QueueStats, Register
from common.watchdog import STALLED, Watchdog


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def queues(**stats: QueueStats) -> dict[str, Watched]:
    """The queues as the broker states them."""
    found = {name: Watched() for name in ("prompts", "groups", "scored", "batches")}
    for name, value in stats.items():
        found[name].put(Register(name=f"queue/{name}", version=1, value=msgspec.msgpack.encode(value)))
    return found


def test_a_third_of_the_limit_is_reported_once_and_all_of_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watchdog = Watchdog("filter", stall_s=30.0, queues=queues(prompts=QueueStats(ready=5)), clock=clock)
    clock.now += 9.0
    assert (watchdog.check(), caplog.records) == ("", [])
    for _ in range(2):
        clock.now += 5.0
        assert watchdog.check() == ""
    assert [record.message for record in caplog.records] == ["no progress"]
    assert STALLED.labels("filter")._value.get() == 19.0
    clock.now += 12.0
    assert watchdog.check() == (
        "no progress for 31 s, the limit is [run] stall_s = 30: nobody takes the 5 of prompts: a rollout is missing; "
        "see logs/, mend it, then go on with --resume"
    )


def test_progress_forgives_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    watchdog = Watchdog("learner", stall_s=30.0, queues=queues(), clock=clock)
    clock.now += 20.0
    watchdog.check()
    watchdog.beat()
    clock.now += 9.0
    assert watchdog.check() == ""
    assert STALLED.labels("learner")._value.get() == 0.0
    assert [record.message for record in caplog.records] == ["no progress", "progress again"]


def test_a_limit_of_0_never_ends_anything() -> None:
    clock = Clock()
    watchdog = Watchdog("learner", stall_s=0.0, queues=queues(), clock=clock)
    clock.now += 1e9
    assert watchdog.check() == ""


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ({}, "nothing lies in any queue"),
        ({"groups": QueueStats(leased=3)}, "a reward holds 3 of groups and gives nothing"),
        ({"batches": QueueStats(ready=1)}, "nobody takes the 1 of batches: the learner is missing"),
        ({"prompts": QueueStats(ready=2, leased=4)}, "a rollout holds 4 of prompts, 2 wait"),
        (
            {"prompts": QueueStats(leased=1), "scored": QueueStats(leased=6)},
            "the filter holds 6 of scored and gives nothing; a rollout holds 1 of prompts and gives nothing",
        ),
    ],
)
def test_the_cause_is_where_the_work_lies(stats: dict[str, QueueStats], expected: str) -> None:
    assert Watchdog("filter", stall_s=1.0, queues=queues(**stats)).waits_for() == expected


async def test_without_work_nothing_is_stalled() -> None:
    watchdog = Watchdog("filter", stall_s=0.06, queues=queues())
    with pytest.raises(TimeoutError):
        await _for(watchdog, seconds=0.3)


async def _for(watchdog: Watchdog, *, seconds: float) -> None:
    import asyncio

    async with asyncio.timeout(seconds):
        await watchdog.watch(lambda: False)
