"""What happened between two scrapes: how much counters grew, and how each stage spent the time.

    growth = value now - value before, per process; a counter that fell was restarted at 0

A service counts a state of a stage when it ends, so a long step of the learner shows in the interval in which it ended;
shares are therefore of a window of several intervals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.cli.scrape import Number, Numbers

SECONDS = "dapo_stage_seconds_total"
STATES = ("busy", "starved", "blocked")
Seconds = dict[str, dict[str, float]]
"""By stage and state."""


@dataclass(kw_only=True)
class Growth:
    """Remembers the counters of the scrape before."""

    _before: dict[tuple[str, str, tuple[str, ...]], float] = field(default_factory=dict)

    def since_last(self, numbers: Numbers, name: str) -> list[Number]:
        """The counters of this name, each with its growth as value."""
        return [number._replace(value=self._grown(number)) for number in numbers.of(name)]

    def _grown(self, number: Number) -> float:
        key = (number.process, number.name, tuple(number.labels.values()))
        before, self._before[key] = self._before.get(key, 0.0), number.value
        return number.value - before if number.value >= before else number.value


def add(total: Seconds, grown: list[Number]) -> None:
    """Add the growth of stage counters to a total."""
    for number in grown:
        states = total.setdefault(number.labels["stage"], dict.fromkeys(STATES, 0.0))
        states[number.labels["state"]] += number.value


def shares(states: Mapping[str, float]) -> dict[str, float]:
    """The states' parts of the whole; zeros if nothing was measured."""
    whole = sum(states.values())
    return {state: value / whole if whole else 0.0 for state, value in states.items()}
