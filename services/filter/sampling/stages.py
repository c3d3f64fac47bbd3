"""How boldly the sampler follows its scores: temperature by stage of the run, and presets by size of the data.

    explore   the first 20 % of the planned steps   temperature high
    exploit   until 80 %                            lowered
    settle    the rest                              and outliers among the scores are damped

    prompts             temperature (explore, exploit, settle)   steps between updates   decay
    below 10,000        0.4, 0.2, 0.2                            50                      0.95
    to 1,000,000        0.6, 0.3, 0.3                            100                     0.99
    above               0.8, 0.4, 0.4                            500                     0.999
    "article"           0.4, 0.25, 0.1                           by size                 by size

A run shorter than 20 updates is updated 20 times all the same.
"""

from dataclasses import dataclass
from typing import Literal

Stage = Literal["explore", "exploit", "settle"]
STAGES: tuple[Stage, ...] = ("explore", "exploit", "settle")
EXPLORE_UNTIL, SETTLE_FROM = 0.2, 0.8
LEAST_UPDATES = 20
Preset = Literal["auto", "small", "medium", "large", "article"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Of one run."""

    steps: int
    temperatures: tuple[float, float, float]
    period: int
    """Steps between two updates of the table."""
    decay: float

    def stage(self, step: int) -> Stage:
        """Where step `step` (from 0) lies."""
        share = step / self.steps
        return "explore" if share < EXPLORE_UNTIL else "settle" if share >= SETTLE_FROM else "exploit"

    def temperature(self, step: int) -> float:
        """Of the softmax over categories."""
        return self.temperatures[STAGES.index(self.stage(step))]

    def warnings(self) -> list[str]:
        """What makes category probabilities swing to and fro."""
        found = []
        if self.period < 0.01 * self.steps:
            found.append(f"[filter] sampling_period = {self.period} is under 1 % of the {self.steps} steps")
        if self.decay < 0.9:
            found.append(f"[filter] sampling_decay = {self.decay} is below 0.9")
        return [f"{cause}: the probabilities of the categories may oscillate" for cause in found]


SIZES: dict[str, tuple[tuple[float, float, float], int, float]] = {
    "small": ((0.4, 0.2, 0.2), 50, 0.95),
    "medium": ((0.6, 0.3, 0.3), 100, 0.99),
    "large": ((0.8, 0.4, 0.4), 500, 0.999),
}
ARTICLE = (0.4, 0.25, 0.1)


def size_of(num_rows: int) -> str:
    """The preset for so many prompts."""
    return "small" if num_rows < 10_000 else "medium" if num_rows <= 1_000_000 else "large"


def schedule(preset: Preset, *, num_rows: int, steps: int, period: int = 0, decay: float = 0.0) -> Schedule:
    """The schedule of a preset; `period` and `decay` replace its own unless they are 0."""
    temperatures, its_period, its_decay = SIZES[preset if preset in SIZES else size_of(num_rows)]
    return Schedule(
        steps=steps,
        temperatures=ARTICLE if preset == "article" else temperatures,
        period=period or max(1, min(its_period, steps // LEAST_UPDATES)),
        decay=decay or its_decay,
    )
