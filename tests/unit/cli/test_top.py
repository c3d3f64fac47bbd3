"""`dapo top`: what a run does now, on a screen of any width, and for scripts."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from services.cli import top
from services.cli.alarms import alarms
from services.cli.dashboard import Scene, clock, render, sparkline, stage_bar
from services.cli.events import Event, last_events
from services.cli.scrape import Number, Numbers
from services.cli.snapshot import Snapshot
from tests.run_folders import START, make_run

NOW = START + 100


def snapshot(*numbers: tuple[str, dict[str, str], float], **changes: Any) -> Snapshot:
    rows = [{"step": step, "time": START + step, "accuracy": 0.1 * step, "age_max": 1.0} for step in range(8)]
    values: dict[str, Any] = {
        "steps": 10, "rows": rows, "evals": [], "seconds": {}, "tokens_per_s": {"sampled": 5.0},
        "numbers": Numbers([Number("p", *number) for number in numbers]),
    }  # fmt: skip
    return Snapshot(**(values | changes))


def shown(scene: Scene, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(scene, width=width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def scene(**changes: Any) -> Scene:
    values: dict[str, Any] = {
        "title": "runs/x", "restarts": {"learner-0": 2}, "alarms": ["few groups are kept"],
        "events": [Event(START, "filter-0", "held-out accuracy 0.5")],
        "snapshot": snapshot(
            ("dapo_queue_items", {"queue": "groups", "state": "ready"}, 7.0),
            ("dapo_queue_oldest_seconds", {"queue": "groups"}, 2.5),
            seconds={"learner": {"busy": 1.0, "starved": 3.0, "blocked": 0.0}},
        ),
    }  # fmt: skip
    return Scene(**(values | changes))


@pytest.mark.parametrize("width", [60, 80, 119, 120, 200])
def test_the_dashboard_shows_everything_within_its_width(width: int) -> None:
    text = shown(scene(), width)
    for part in ("runs/x", "step 8/10", "accuracy", "0.70", "learner", "25%", "75%", "groups", "2.5 s",
                 "few groups are kept", "held-out accuracy 0.5"):  # fmt: skip
        assert part in text
    assert max(map(len, text.splitlines())) <= width


def test_the_restarts_of_a_stage_are_beside_it() -> None:
    (line,) = [line for line in shown(scene(), 80).splitlines() if "learner" in line]
    assert line.rstrip(" │").endswith("2")


def test_a_run_of_which_nothing_is_known_can_be_shown() -> None:
    empty = snapshot(rows=[], tokens_per_s={})
    assert "step 0/10" in shown(scene(snapshot=empty, restarts={}, alarms=[], events=[]), 80)


def test_a_sparkline_spans_its_values_and_averages_what_is_too_long() -> None:
    assert sparkline([0, 1, 2, 7], 10) == "▁▂▃█"
    assert sparkline([0, 0, 8, 8], 2) == "▁█"
    assert sparkline([3, 3], 10) == "▁▁"
    assert sparkline([], 10) == ""


def test_a_bar_has_the_shares_of_its_stage() -> None:
    assert stage_bar({"busy": 0.5, "starved": 0.25, "blocked": 0.25}, 8).plain == "████░░▒▒"


def test_clocks_have_hours_when_there_are_any() -> None:
    assert [clock(65), clock(7389)] == ["1:05", "2:03:09"]


@pytest.mark.parametrize(
    ("numbers", "changes", "sentence"),
    [
        ([("dapo_broker_dead_letters_total", {"queue": "prompts"}, 3.0)], {}, "3 dead letters"),
        ([("dapo_filter_low_keep_rate", {}, 1.0)], {}, "few groups are kept"),
        (
            [("dapo_reward_verdicts_total", {"verdict": "error"}, 20.0),
             ("dapo_reward_verdicts_total", {"verdict": "wrong"}, 180.0)],
            {}, "10% of the verdicts are errors",
        ),
        ([], {"silent": ("reward-0",)}, "no metrics from reward-0"),
        ([], {"seconds": {"learner": {"busy": 1.0, "starved": 3.0, "blocked": 0.0}}}, "the learner waits 75%"),
        ([], {"rows": [{"step": 0, "time": NOW, "age_max": 2.0}]}, "a token of age 2 was trained, the bound is 1"),
        ([], {"rows": [{"step": 0, "time": NOW, "ess": 0.3}]}, "ess 0.3"),
        ([], {"rows": [{"step": 0, "time": NOW - 300}]}, "no step for 5 minutes"),
    ],
)  # fmt: skip
def test_trouble_is_an_alarm(numbers: list[Any], changes: dict[str, Any], sentence: str) -> None:
    (alarm,) = alarms(snapshot(*numbers, **changes), max_staleness=1, now=NOW)
    assert sentence in alarm


def test_a_run_that_goes_well_or_is_over_has_no_alarm() -> None:
    assert alarms(snapshot(), max_staleness=1, now=NOW) == []
    assert alarms(snapshot(steps=8, silent=("reward-0",)), max_staleness=1, now=NOW + 1e6) == []


def test_events_are_restarts_evaluations_and_complaints_in_order(tmp_path: Path) -> None:
    events = last_events(make_run(tmp_path / "run"), 10)
    assert [(e.who, e.text) for e in events] == [
        ("filter-0", "held-out accuracy 0.250, version 0"),
        ("filter-0", "low keep rate"),
        ("filter-0", "held-out accuracy 0.500, version 6"),
        ("filter-0", "held-out accuracy 0.750, version 12"),
    ]
    assert events[1].time == START + 1


def test_once_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "ONCE_S", 0.0)
    folder = make_run(tmp_path / "run")
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    assert top.main([str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step"], found["steps"], found["newest"]["step"]) == (12, 12, 11)
    assert found["stage_seconds"]["learner"]["busy"] == 3.0
    assert top.main([str(folder), "--once", "--width", "90"]) == 0
    assert "step 12/12" in capsys.readouterr().out
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before  # it only looks


def test_without_a_run_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert top.main([]) == 2
    assert "runs/ holds no run" in capsys.readouterr().err
    make_run(tmp_path / "runs" / "old")
    assert top.newest_run(Path("runs")) == Path("runs/old")
