"""Back-off and the crash loop."""

from services.cli.restarts import Deaths


def died(*times: float, step: int = 0) -> Deaths:
    deaths = Deaths()
    for now in times:
        deaths.record(now, step)
    return deaths


def test_the_wait_doubles_with_every_death_up_to_a_limit() -> None:
    deaths, waits = Deaths(), []
    for now in range(5):
        deaths.record(float(now), 0)
        waits.append(deaths.wait_s)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_five_deaths_without_a_step_are_a_crash_loop() -> None:
    assert not died(0, 1, 2, 3).is_loop
    assert died(0, 1, 2, 3, 4).is_loop


def test_five_deaths_over_a_long_time_are_none() -> None:
    assert not died(0, 300, 600, 900, 1200).is_loop


def test_a_step_of_the_run_forgives_all_deaths() -> None:
    deaths = died(0, 1, 2, 3, step=4)
    deaths.record(5, 5)
    assert (deaths.is_loop, deaths.wait_s) == (False, 0.5)
