import dataclasses
import logging
from typing import Any

import pytest

from common.errors import UserError
from services.filter.config import FilterConfig
from services.filter.prompts import Sampler, UniformSampler
from services.filter.sampling.adaptive import AdaptiveSampler
from services.filter.sampling.choose import choose
from services.filter.sampling.mixture import MixtureSampler
from services.filter.sampling.state import SamplerState
from services.filter.schema import Row
from tests.unit.filter.makers import make_rows, make_run


def rows(*categories: str) -> list[Row]:
    return [
        dataclasses.replace(row, category=name)
        for row, name in zip(make_rows(len(categories)), categories, strict=True)
    ]


def chosen(*categories: str, **config: Any) -> Sampler:
    return choose(FilterConfig(data="none", **config), make_run(steps=1000), rows(*categories), SamplerState(), b"")


def test_plain_dapo_is_the_default() -> None:
    assert isinstance(chosen("a", "b"), UniformSampler)
    assert FilterConfig(data="none").sampling == "uniform"


def test_weights_alone_are_a_shuffled_mixture() -> None:
    assert isinstance(chosen("a", "b", weights={"a": 1.0, "b": 2.0}), MixtureSampler)


@pytest.mark.parametrize("score", ["signal", "gradient_variance", "high_gradient_variance"])
def test_every_score_adapts(score: str) -> None:
    assert isinstance(chosen("a", "b", sampling=score), AdaptiveSampler)


def test_weights_with_prompts_chosen_by_their_pass_rates() -> None:
    sampler = chosen("a", "b", sampling="weights", weights={"a": 1.0, "b": 3.0})
    assert isinstance(sampler, AdaptiveSampler)
    assert sampler.state.table == {"a": 0.25, "b": 0.75}


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"a": 1.0, "x": 1.0}, "weights names `x`, which no row has; the categories are a, b"),
        ({"a": 1.0}, "weights lacks category `b`: give it a weight, 0 to leave it out"),
    ],
)
def test_weights_that_do_not_fit_the_data_are_refused(weights: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        chosen("a", "b", weights=weights)


def test_a_field_that_tells_every_row_apart_is_no_category() -> None:
    with pytest.raises(UserError, match='category = "data_source" has 1001 values'):
        chosen(*map(str, range(1001)), sampling="signal")


def test_the_causes_of_oscillation_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chosen("a", sampling="signal", sampling_period=5, sampling_decay=0.5)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "[filter] sampling_period = 5 is under 1 % of the 1000 steps",
        "[filter] sampling_decay = 0.5 is below 0.9",
    ]
