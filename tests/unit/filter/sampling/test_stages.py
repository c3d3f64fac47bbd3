import pytest

from services.filter.sampling.stages import schedule


@pytest.mark.parametrize(
    ("rows", "tau", "period", "decay"), [(9_999, 0.2, 50, 0.95), (10_000, 0.3, 100, 0.99), (2_000_000, 0.4, 500, 0.999)]
)
def test_the_size_of_the_data_chooses_the_preset(rows: int, tau: float, period: int, decay: float) -> None:
    chosen = schedule("auto", num_rows=rows, steps=100_000)
    assert (chosen.temperatures[1], chosen.period, chosen.decay) == (tau, period, decay)


def test_the_article_s_temperatures_go_by_its_name() -> None:
    chosen = schedule("article", num_rows=100, steps=100)
    assert [chosen.temperature(step) for step in (0, 19, 20, 79, 80, 99)] == [0.4, 0.4, 0.25, 0.25, 0.1, 0.1]
    assert [chosen.stage(step) for step in (0, 20, 80)] == ["explore", "exploit", "settle"]


def test_exploration_is_the_hottest_stage_of_every_preset() -> None:
    for preset in ("small", "medium", "large"):
        explore, exploit, settle = schedule(preset, num_rows=1, steps=100).temperatures  # type: ignore[arg-type]
        assert explore > exploit >= settle


def test_a_short_run_is_updated_twenty_times_all_the_same() -> None:
    assert schedule("small", num_rows=100, steps=200).period == 10
    assert schedule("small", num_rows=100, steps=5).period == 1


def test_what_makes_the_probabilities_oscillate_is_said() -> None:
    hasty = schedule("auto", num_rows=100, steps=1000, period=9, decay=0.89)
    assert [text.split(" is ")[0] for text in hasty.warnings()] == [
        "[filter] sampling_period = 9", "[filter] sampling_decay = 0.89",
    ]  # fmt: skip
    for preset in ("small", "medium", "large", "article"):
        for steps in (1, 50, 1000, 100_000):
            period = schedule(preset, num_rows=100, steps=steps).period  # type: ignore[arg-type]
            assert period >= 0.01 * steps or steps == 100_000


def test_the_presets_themselves_warn_of_nothing_in_a_run_of_usual_length() -> None:
    assert schedule("auto", num_rows=5000, steps=500).warnings() == []
