"""Configuration and rules of Prometheus, by its own tool; and that every alert can be read up."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "compose" / "prometheus"
CASES = Path(__file__).parent / "rules.yml"
RULES = [
    rule
    for path in sorted((FOLDER / "rules").glob("*.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
ALERTS: list[dict[str, Any]] = [rule for rule in RULES if "alert" in rule]

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian, Ubuntu: apt-get install prometheus)"
)


def promtool(*words: str) -> str:
    result = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@needs_promtool
def test_prometheus_accepts_its_configuration() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "config", str(FOLDER / "prometheus.yml"))


@needs_promtool
def test_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(CASES))


@needs_promtool
def test_a_rule_that_is_broken_does_not_pass_its_cases(tmp_path: Path) -> None:
    for path in (FOLDER / "rules").glob("*.yml"):
        text = path.read_text().replace('{name="mismatch_kl"}) > 0.05', '{name="mismatch_kl"}) > 0.5')
        (tmp_path / path.name).write_text(text)
    cases = tmp_path / "cases.yml"
    cases.write_text(CASES.read_text().replace("../../../compose/prometheus/rules", str(tmp_path)))
    result = subprocess.run(["promtool", "test", "rules", cases], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "MismatchKL" in result.stdout + result.stderr


def test_every_alert_has_a_case() -> None:
    cases = CASES.read_text()
    for alert in ALERTS:
        assert re.search(rf'(alertname: |alertname=\\?"){alert["alert"]}\b', cases), alert["alert"]


def test_every_alert_has_its_heading_in_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.M)
    for alert in ALERTS:
        assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"
    assert headings == [alert["alert"] for alert in ALERTS]


def test_every_metric_of_a_rule_exists() -> None:
    sources = [path.read_text() for folder in ("common", "services") for path in (ROOT / folder).rglob("*.py")]
    known = set(re.findall(r'"(dapo_\w+)"', "\n".join(sources)))
    for rule in RULES:
        for name in re.findall(r"(?<![\w:])dapo_\w+", rule["expr"]):
            assert re.sub("_(sum|count|bucket)$", "", name) in known or name in known, name
