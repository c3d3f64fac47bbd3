import logging

import pytest
from prometheus_client import REGISTRY

from services.filter.measures import Measures
from services.filter.sampling.state import Monitored, SamplerState
from services.filter.state import EvalTally, FilterState


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_the_groups_by_fate_and_reason_add_up_to_those_issued() -> None:
    state = FilterState(
        outstanding={"a": 0, "b": 0, "c": 0}, accepted={"a"}, batched={0: ["d", "e"]}, issued=12, trained=3,
        dropped={"all_wrong": 3, "stale": 1},
    )  # fmt: skip
    state.check()
    Measures(low_keep_rate=0.1).show(state, pool=1)
    fates = {
        (sample.labels["fate"], sample.labels["reason"]): sample.value
        for metric in REGISTRY.collect() if metric.name == "dapo_filter_groups" for sample in metric.samples
    }  # fmt: skip
    assert fates["dropped", "all_wrong"] == 3
    assert fates["dispatched", ""] == 2
    assert fates.pop(("issued", "")) == sum(fates.values()) == 12


def test_ages_are_counted_group_by_group() -> None:
    before = [value("dapo_filter_age_versions_bucket", le=le) or 0 for le in ("0.0", "1.0", "+Inf")]
    Measures(low_keep_rate=0.1).batches([0, 1, 1, 3], number=2)
    after = [value("dapo_filter_age_versions_bucket", le=le) or 0 for le in ("0.0", "1.0", "+Inf")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 3, 4]


def test_the_newest_finished_evaluation_is_shown() -> None:
    evals = {
        4: EvalTally(rows=2, answered=2, judged=2, correct=1.0),
        8: EvalTally(rows=2, answered=1, judged=1, correct=1.0),
    }
    Measures(low_keep_rate=0.1).show(FilterState(evals=evals), pool=0)
    assert value("dapo_filter_eval_accuracy_ratio") == 0.5


def test_the_categories_of_an_adaptive_sampler_are_shown() -> None:
    state = FilterState(sampler=SamplerState(table={"a": 0.75}, monitored={"a": Monitored()}))
    state.sampler.monitored["a"].pass_rate.add(0.5, 0.9)
    Measures(low_keep_rate=0.1).show(state, pool=0)
    assert value("dapo_filter_category_ratio", category="a", what="probability") == 0.75
    assert value("dapo_filter_category_ratio", category="a", what="pass_rate") == pytest.approx(0.5)


def test_a_low_keep_rate_is_said_once_until_it_recovers(caplog: pytest.LogCaptureFixture) -> None:
    measures = Measures(low_keep_rate=0.1)
    nothing = FilterState(recent=[0] * 60, dropped={"all_wrong": 60}, issued=60)
    with caplog.at_level(logging.WARNING):
        for state in (nothing, nothing, FilterState(recent=[1] * 60), nothing):
            measures.show(state, pool=0)
    assert [record.message for record in caplog.records] == 2 * ["low keep rate: 0 of the last 60 groups were kept"]
    assert value("dapo_filter_low_keep_rate") == 1


def test_nothing_kept_at_all_is_said_early(caplog: pytest.LogCaptureFixture) -> None:
    # D11 with no cap: batches of four groups, three rounds
    Measures(low_keep_rate=0.1).show(FilterState(recent=[0] * 12, dropped={"all_wrong": 12}, issued=12), pool=0)
    assert [record.message for record in caplog.records] == ["low keep rate: 0 of the last 12 groups were kept"]
    assert value("dapo_filter_low_keep_rate") == 1
    Measures(low_keep_rate=0.1).show(FilterState(recent=[1, *[0] * 40]), pool=0)
    assert value("dapo_filter_low_keep_rate") == 0  # one was: 50 are needed to speak of a rate


def test_a_few_groups_are_no_reason_for_an_alarm() -> None:
    Measures(low_keep_rate=0.1).show(FilterState(recent=[0] * 10), pool=0)
    assert value("dapo_filter_low_keep_rate") == 0
