"""`dapo report --trace`: the stages of a run on one time axis."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from services.cli.report.main import main
from services.cli.report.trace import Lanes
from tests.run_folders import make_run


@pytest.fixture
def events(tmp_path: Path) -> list[dict[str, Any]]:
    folder = make_run(tmp_path / "run", steps=6)
    assert main([str(folder), "--trace", "--steps", "2:4"]) == 0
    found: list[dict[str, Any]] = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return found


def of(events: list[dict[str, Any]], process: str, phase: str = "X") -> list[dict[str, Any]]:
    (number,) = [e["pid"] for e in events if e["ph"] == "M" and e["args"]["name"] == process]
    return [e for e in events if e["pid"] == number and e["ph"] == phase]


def test_groups_are_slices_of_the_processes_that_worked_on_them(events: list[dict[str, Any]]) -> None:
    sampled, scored = of(events, "rollout-0"), of(events, "reward-0")
    assert [e["name"] for e in sampled] == [f"0/{k:06d}" for k in range(12, 30)]
    # step 2 begins at 4 s, which is 0 here; a group is sampled in the 0.4 s before 0.5 s, judged in 0.1 s before 0.7 s
    assert (sampled[0]["ts"], sampled[0]["dur"]) == (100_000, 400_000)
    assert (scored[0]["ts"], scored[0]["dur"]) == (600_000, 100_000)
    assert sampled[4]["args"] == {"tokens": 36, "longest": 9, "fate": "dropped", "reason": "all_correct"}


def test_slices_of_one_lane_do_not_overlap(events: list[dict[str, Any]]) -> None:
    lanes = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        assert all(end <= start + 1 for (_, end), (start, _) in pairwise(spans))
    assert len({tid for pid, tid in lanes}) > 1


def test_the_learners_phases_follow_one_another(events: list[dict[str, Any]]) -> None:
    names = [e["name"] for e in of(events, "learner-0")]
    assert names == [f"{phase} {step}" for step in (2, 3, 4) for phase in ("wait", "train", "publish")]
    wait, train, publish = of(events, "learner-0")[:3]
    assert (wait["dur"], train["dur"], publish["dur"]) == (600_000, 1_000_000, 200_000)
    assert wait["ts"] + wait["dur"] == train["ts"]
    assert publish["ts"] + publish["dur"] == 2_000_000  # the end of step 2


def test_trained_groups_have_arrows_to_their_step_and_dropped_ones_none(events: list[dict[str, Any]]) -> None:
    arrows = [(e["id"], e["ph"]) for e in events if e.get("cat") == "group"]
    assert [phase for name, phase in arrows if name == "0/000012"] == ["s", "t", "f"]
    assert len({name for name, _ in arrows}) == 3 * 4
    assert "0/000016" not in {name for name, _ in arrows}


def test_batches_and_versions_are_marks(events: list[dict[str, Any]]) -> None:
    assert [e["name"] for e in of(events, "filter-0", "i")] == ["batch 2", "batch 3", "batch 4"]
    assert "version 4" in [e["name"] for e in of(events, "learner-0", "i")]


def test_a_lane_is_free_again_after_its_end() -> None:
    lanes = Lanes()
    assert [lanes.lane(*span) for span in ((0, 2), (1, 3), (2, 4), (2.5, 5), (3, 4))] == [1, 2, 1, 3, 2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["--steps", "5"], "is not of the form FIRST:LAST"), (["--steps", "5:2"], "is not of the form FIRST:LAST")],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    folder = make_run(tmp_path / "run", steps=2)
    assert main([str(folder), "--trace", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert main([str(folder), str(folder), "--trace"]) == 2
    assert "a trace is of one run" in capsys.readouterr().err
