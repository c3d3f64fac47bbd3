"""The table and the picture at the end of a run."""

from pathlib import Path
from typing import Any

import pytest

from common.config import RunConfig
from services.cli import plot
from services.cli.audit.reading import Stream
from services.cli.demonstration import _verdict
from services.cli.summary import Summary, lines, overlap

REPORT = {
    "issued": 40, "trained": 8, "filtered": {"all_correct": 3, "all_wrong": 5}, "dead": 0, "left": 24, "lost": 0,
    "greatest_age": 1, "max_staleness": 1, "steps": 2, "ok": True, "violations": [],
}  # fmt: skip


def row(step: int, **values: float) -> dict[str, Any]:
    return {
        "step": step, "time": 100.0 + 10 * step, "wait_seconds": 3.0, "train_seconds": 2.0, "trained_tokens": 10.0,
        "accuracy": 0.5, "reward": 0.0, "age_mean": 0.0, "age_max": 0.0, "filter_issued": 4.0, **values,
    }  # fmt: skip


def finished(**changes: Any) -> Summary:
    rows = [row(0), row(1, trained_tokens=30.0, age_mean=1.0, age_max=1.0)]
    evals = [{"version": v, "accuracy": a} for v, a in ((0, 0.25), (1, 0.5), (2, 0.875))]
    values: dict[str, Any] = {
        "rows": rows, "evals": evals, "stages": {"learner": {"busy": 1.0, "starved": 3.0, "blocked": 0.0}},
        "report": REPORT, "run": RunConfig(name="r", model="m", group_size=8, groups_per_batch=4), "overlap": 0.5,
        "wall_s": 60.0,
    }  # fmt: skip
    return Summary(**(values | changes))


def test_the_table_states_the_numbers_of_the_run() -> None:
    table = dict(lines(finished()))
    assert table["held-out accuracy"] == "0.250 -> 0.875"
    # 8 of 8 + 8 judged groups were kept
    assert table["keep rate"] == "0.50 (3 dropped as all_correct, 5 dropped as all_wrong)"
    # (10 tokens x 0 + 30 tokens x 1) / 40
    assert table["age of tokens"] == "mean 0.75, greatest 1 (limit 1)"
    # from 3 + 2 s before the end of step 0 to the end of step 1: 15 s; 16 groups of 8
    assert table["samples"] == "128, 8.5 per second"
    assert table["groups"] == "40 issued = 8 trained + 8 filtered + 24 left"
    assert table["stage learner"] == "busy  25%  starved  75%  blocked   0%"
    assert table["wall time"] == "60 s, of which 15 s training"
    assert table["audit"] == "passed"


def test_a_failed_audit_is_not_hidden() -> None:
    report = REPORT | {"ok": False, "violations": ["lost: 0/000001 ..."], "lost": 1}
    table = dict(lines(finished(report=report)))
    assert table["audit"] == "FAILED: lost: 0/000001 ..."
    assert table["groups"].endswith("+ 1 lost")


def test_a_run_without_a_step_has_a_table() -> None:
    report = REPORT | {"trained": 0, "filtered": {}}
    assert dict(lines(finished(rows=[], evals=[], report=report)))["keep rate"] == "0.00 (none dropped)"


def test_overlap_counts_the_groups_that_were_finished_while_the_learner_trained() -> None:
    # Training filled [98, 100] and [108, 110].
    trained = [{"event": "trained", "time": 100.0, "step": 0}, {"event": "trained", "time": 110.0, "step": 1}]
    sampled = [{"event": "sampled", "time": time} for time in (97.0, 99.0, 105.0, 109.5)]
    streams = [
        Stream(name="learner-0-1", role="learner", records=trained),
        Stream(name="rollout-0-1", role="rollout", records=sampled),
    ]
    assert overlap(streams, [row(0), row(1)]) == 0.5


def test_the_keep_rate_of_a_step_is_of_the_last_batches() -> None:
    rows = [row(0, filter_dropped_all_wrong=4.0), row(1, filter_dropped_all_wrong=4.0, filter_dropped_all_correct=8.0)]
    # 4 kept of 8 judged; then 8 kept of 20
    assert plot.keep_rates(rows, 4) == [0.5, 0.4]


def test_smoothing_averages_what_is_there() -> None:
    assert plot.smooth([1.0, 3.0, 5.0]) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("changes", [{}, {"rows": [], "evals": [], "stages": {}}])
def test_the_picture_is_a_png(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "plot.png"
    plot.draw(finished(**changes), path, title="t", target=0.85)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_verdict_needs_both_the_target_and_the_audit() -> None:
    assert "PASSED" in _verdict(reached=True, audited=True)
    assert "FAILED" in _verdict(reached=False, audited=True)
    assert "FAILED" in _verdict(reached=True, audited=False)
