"""Axes and numbers: round ticks, linear and logarithmic positions, and values as short text."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value; what lies outside is put at the edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """About `count` round values within."""
        found = powers(self.low, self.high) if self.log else []
        return found if len(found) > 1 else ticks(self.low, self.high, count)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten within [low, high]."""
    step = round_step((high - low) / max(1, count))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def powers(low: float, high: float) -> list[float]:
    """Powers of ten within; if there are fewer than two, 1, 2 and 5 times those."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    tens = [10.0**k for k in range(first, last + 1)]
    every = [m * ten for ten in tens for m in (1, 2, 5)]
    inside = [value for value in tens if low * 0.999 <= value <= high * 1.001]
    return inside if len(inside) > 1 else [value for value in every if low * 0.999 <= value <= high * 1.001]


def round_step(rough: float) -> float:
    """The least round number that is not below `rough`."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in STEPS if step * power >= rough * (1 - 1e-9))


def bounds(values: Iterable[float], low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """The range to show: the given ends, else those of the values with a margin; never empty."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    bottom = min(known) if low is None else low
    top = max(known) if high is None else high
    if high is None and low is None and bottom >= 0 and bottom < 0.5 * top:
        bottom = 0.0
    margin = (top - bottom) * 0.06 or abs(top) * 0.1 or 1.0
    return (bottom - margin * (low is None and bottom != 0)), (top + margin * (high is None))


def short(value: float) -> str:
    """A number for people: `12.3k`, `0.042`, `3e-07`."""
    size = abs(value)
    if size >= 1e4:
        for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if size >= limit:
                return f"{value / limit:.4g}{sign}"
    if size == 0 or size >= 1e-3:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def clock(seconds: float) -> str:
    """`87 s`, `12 min`, `3 h 20 min`."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def quantile(values: Sequence[float], share: float) -> float:
    """By linear interpolation; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
