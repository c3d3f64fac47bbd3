"""docs/metrics.md is what the code says, and the names follow Prometheus' rules."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import generate_latest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "compose"))

import generate  # noqa: E402
import metrics  # noqa: E402

sys.path.remove(str(ROOT / "compose"))

UNITS = {"total", "seconds", "bytes", "ratio", "versions", "items", "groups", "rows", "workers", "step", "steps"}
FOUND = [metric for folder in metrics.ROLES for metric in metrics.metrics_in(ROOT / folder)]


def test_the_page_is_current() -> None:
    assert generate.METRICS.read_text() == metrics.page(), "run compose/generate.py"


def test_the_operators_rules_are_those_of_compose() -> None:
    assert generate.OPERATOR_RULES.read_text() == generate.operator_rules(), "run compose/generate.py"


def test_no_definition_escapes_the_page() -> None:
    # Every first argument that looks like a metric's name, wherever it stands, is on the page.
    calls = re.compile(r'\b(?:Counter|Gauge|Histogram|Summary|Info|Enum)\(\s*f?"(\w+)"')
    sources = [path for folder in metrics.ROLES for path in (ROOT / folder).rglob("*.py")]
    written = {name for path in sources for name in calls.findall(path.read_text())}
    assert written == {metric.name for metric in FOUND}
    assert len(FOUND) == len(written)


@pytest.mark.parametrize("metric", FOUND, ids=lambda metric: metric.name)
def test_a_name_says_what_is_counted_and_in_which_unit(metric: metrics.Metric) -> None:
    assert metric.name.startswith("dapo_")
    assert (metric.kind == "Counter") == metric.name.endswith("_total")
    if metric.kind == "Histogram":
        assert metric.name.rpartition("_")[2] in UNITS
    assert metric.text.endswith(".")


def test_no_label_names_one_item() -> None:
    # An id, a text or a process as a label would make a series of each.
    labels = {label for metric in FOUND for label in metric.labels}
    assert not labels & {"id", "group", "item", "prompt", "peer", "client", "replica", "path", "step", "version"}


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian, Ubuntu: apt-get install prometheus)"
)
def test_promtool_has_nothing_to_say_about_them() -> None:
    import services.broker.service
    import services.filter.measures
    import services.reward.service  # noqa: F401

    own = [line for line in generate_latest().decode().splitlines() if re.match("(# (HELP|TYPE) )?dapo_", line)]
    text = "".join(f"{line}\n" for line in own).encode()
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
