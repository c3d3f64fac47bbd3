"""Axes and numbers of the report."""

import pytest

from services.cli.report.scale import Axis, bounds, clock, powers, quantile, short, ticks


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1, 4) == [0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(3, 47, 5) == [10, 20, 30, 40]
    assert [round(t, 9) for t in ticks(-0.37, 0.37, 4)] == [-0.2, 0, 0.2]


def test_a_logarithmic_axis_has_powers_of_ten_or_their_parts() -> None:
    assert powers(0.02, 5) == pytest.approx([0.1, 1.0])
    assert powers(1.1, 8) == pytest.approx([2, 5])


def test_places_are_linear_or_logarithmic_and_stay_inside() -> None:
    linear = Axis(low=0, high=10, start=100, end=200)
    assert (linear.place(5), linear.place(99)) == (150, 200)
    # 1 is half way between 0.1 and 10
    assert Axis(low=0.1, high=10, start=0, end=100, log=True).place(1) == pytest.approx(50)


def test_bounds_are_never_empty_and_leave_a_margin() -> None:
    assert bounds([]) == (0.0, 1.06)
    low, high = bounds([3.0, 3.0])
    assert low < 3 < high
    assert bounds([float("nan"), 1.0, 2.0], low=0.0)[0] == 0.0
    assert bounds([1.0, 10.0])[0] == 0.0  # near zero: show it


def test_numbers_are_short() -> None:
    assert [short(v) for v in (0, 0.5, 12345, 2.5e6, 3e-7, 1.24e-4, -0.1)] == [
        "0", "0.5", "12.35k", "2.5M", "3e-7", "1.2e-4", "-0.1",
    ]  # fmt: skip
    assert [clock(s) for s in (87, 720, 12000, 7200)] == ["87 s", "12 min", "3 h 20 min", "2 h"]


def test_quantiles_are_interpolated() -> None:
    assert [quantile([4, 1, 3, 2], share) for share in (0, 0.5, 1)] == [1, 2.5, 4]
    assert quantile([], 0.5) == 0
