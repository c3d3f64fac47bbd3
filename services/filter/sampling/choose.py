"""The sampler that a configuration asks for, with what it says that cannot work or may not work well."""

import logging
from collections.abc import Mapping, Sequence

from common.config import RunConfig
from common.errors import UserError
from services.filter.config import FilterConfig
from services.filter.prompts import Sampler, UniformSampler
from services.filter.sampling.adaptive import AdaptiveSampler
from services.filter.sampling.mixture import MixtureSampler
from services.filter.sampling.stages import schedule
from services.filter.sampling.state import SamplerState
from services.filter.schema import Row

log = logging.getLogger(__name__)

MOST_CATEGORIES = 1000
"""Their averages are part of every hand-over."""


def choose(config: FilterConfig, run: RunConfig, rows: Sequence[Row], state: SamplerState, file: bytes) -> Sampler:
    """Raises `UserError` for weights or categories that do not fit the data."""
    if config.sampling == "uniform" and not config.weights:
        return UniformSampler(len(rows), seed=run.seed)
    categories = [row.category for row in rows]
    _check(config, set(categories))
    if config.sampling == "uniform":
        return MixtureSampler(categories, weights=config.weights, seed=run.seed)
    plan = schedule(
        config.sampling_preset, num_rows=len(rows), steps=run.steps, period=config.sampling_period,
        decay=config.sampling_decay,
    )  # fmt: skip
    for warning in plan.warnings():
        log.warning(warning)
    return AdaptiveSampler(
        state, categories=categories, scores=config.sampling, weights=config.weights, schedule=plan,
        group_size=run.group_size, seed=run.seed, visit_all=config.visit_all, rest_epochs=config.rest_epochs,
        file=file,
    )  # fmt: skip


def _check(config: FilterConfig, present: set[str]) -> None:
    if len(present) > MOST_CATEGORIES:
        raise UserError(
            f"[filter] category = \"{config.category}\" has {len(present)} values, at most {MOST_CATEGORIES} can be "
            "watched: choose a coarser field"
        )  # fmt: skip
    if config.weights:
        _check_weights(config.weights, present)


def _check_weights(weights: Mapping[str, float], present: set[str]) -> None:
    known = ", ".join(sorted(present))
    if absent := sorted(set(weights) - present):
        raise UserError(f"[filter] weights names `{absent[0]}`, which no row has; the categories are {known}")
    if missing := sorted(present - set(weights)):
        raise UserError(f"[filter] weights lacks category `{missing[0]}`: give it a weight, 0 to leave it out")
