import json
import time
from pathlib import Path

import pytest

from common import config
from common.config import RunConfig
from common.history import History
from services.cli import wait
from services.cli.processes import read_sections


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A run folder with one step and one evaluation; the audit is what a test says."""
    path = tmp_path / "c.toml"
    path.write_text(f'[run]\nname = "r"\nmodel = "m"\nfolder = "{tmp_path}"\n[filter]\ndata = "x.jsonl"\n')
    sections = read_sections(config.read(path))
    settings: RunConfig = sections["run"]
    History(settings.path / "history", "filter-0").close()
    config.write(settings.path / "config.toml", sections)
    row = {"step": 0, "time": 1.0, "wait_seconds": 0.5, "train_seconds": 0.5, "trained_tokens": 10.0, "age_mean": 0.0}
    (settings.path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (settings.path / "evals.jsonl").write_text(json.dumps({"version": 1, "accuracy": 0.8}) + "\n")
    return settings


def report(*, ok: bool) -> dict[str, object]:
    return {
        "ok": ok, "violations": [] if ok else ["lost: group 1"], "filtered": {}, "trained": 16, "issued": 16, "dead": 0,
        "left": 0, "lost": 0, "steps": 1, "greatest_age": 0, "max_staleness": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ok", "target", "verdict"),
    [
        (True, 0.75, "PASSED: held-out accuracy 0.800 reached 0.75, the audit passed"),
        (True, 0.9, "FAILED: held-out accuracy 0.800 did not reach 0.9, the audit passed"),
        (False, 0.75, "FAILED: held-out accuracy 0.800 reached 0.75, the audit found violations"),
        (True, 0.0, "PASSED: the audit passed"),
    ],
)
def test_a_run_passes_if_it_reached_its_target_and_lost_nothing(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *,
    ok: bool, target: float, verdict: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(wait, "audit", lambda _: report(ok=ok))
    assert wait.conclude(run, target=target) == (not verdict.startswith("PASSED"))
    assert capsys.readouterr().out.splitlines()[-1] == verdict


def test_the_age_of_a_run_is_that_of_its_first_process(tmp_path: Path) -> None:
    for name, seconds_ago in (("broker-0", 500), ("learner-0", 300), ("learner-0", 20)):
        (tmp_path / f"{name}-{time.time_ns() - seconds_ago * 10**9:020d}.msgpack").touch()
    assert wait.age_s(tmp_path) == pytest.approx(500, abs=5)


def test_a_configuration_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert wait.main(["nowhere.toml"]) == 2
    assert capsys.readouterr().err.startswith("dapo wait: configuration nowhere.toml does not exist")
