"""Real processes in a short storm; `dapo bench chaos` is the long one."""

import sys

import pytest

from tests.chaos.storm import storm

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@pytest.mark.timeout(600)
async def test_a_short_storm_loses_nothing_trains_nothing_twice_and_changes_no_weight() -> None:
    report = await storm(seconds=15.0, seed=7, between_s=(0.5, 2.0), log=sys.stderr)
    assert sum(report["faults"].values()) >= 5
    assert report["finished"]
    assert report["violations"] == []
    assert (report["groups"]["lost"], report["groups"]["trained_twice"]) == (0, 0)
    assert report["greatest_age"] <= report["max_staleness"]
    assert report["replay"]["differing"] == []
    assert report["replay"]["versions_compared"] == report["steps"] + 1
