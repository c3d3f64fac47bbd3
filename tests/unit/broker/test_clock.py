from services.broker.clock import ListeningClock


def test_time_passes_as_on_the_wall_while_the_broker_listens() -> None:
    times = iter([50.0, 50.2, 50.4, 51.4])
    clock = ListeningClock(lambda: next(times))
    assert [round(clock.advance(), 3) for _ in range(3)] == [0.2, 0.4, 1.4]


def test_a_broker_that_was_stopped_for_an_hour_holds_it_against_nobody() -> None:
    times = iter([0.0, 3600.0, 3600.5])
    clock = ListeningClock(lambda: next(times))
    assert [clock.advance(), clock.advance()] == [1.0, 1.5]
