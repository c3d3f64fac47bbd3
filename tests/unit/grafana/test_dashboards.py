"""The committed dashboards: current, provisioned without a question, asking only for metrics that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grafana.build import FOLDER, texts
from grafana.panels import UID

PROVISIONING = FOLDER.parent / "provisioning"
FOREIGN = ("vllm", "DCGM_", "process_", "up")
"""Beginnings of the names of metrics that are not ours."""


def boards() -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted(FOLDER.glob("*.json"))]


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def test_the_committed_dashboards_are_those_that_the_code_builds() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert committed == texts(), "run `python -m grafana.build` and commit grafana/dashboards/"


@pytest.mark.parametrize("path", boards())
def test_a_dashboard_finds_its_data_source_by_itself(path: Path) -> None:
    text = path.read_text()
    board = json.loads(text)
    assert "${DS_" not in text
    assert "__inputs" not in board
    assert board.get("id") is None
    sources = {panel["datasource"]["uid"] for panel in panels(board) if panel["type"] != "row"}
    assert sources == {UID}
    assert f"uid: {UID}" in (PROVISIONING / "datasources" / "prometheus.yaml").read_text()


@pytest.mark.parametrize("path", boards())
def test_panels_have_ids_of_their_own_and_do_not_overlap(path: Path) -> None:
    found = list(panels(json.loads(path.read_text())))
    ids = [panel["id"] for panel in found if panel["type"] != "row"]
    assert len(ids) == len(set(ids)) > 3
    squares = [square for panel in found for square in _squares(panel["gridPos"])]
    assert len(squares) == len(set(squares))
    assert max(x for x, _ in squares) < 24
    for panel in found:
        letters = [target["refId"] for target in panel.get("targets", [])]
        assert len(letters) == len(set(letters))
        assert panel["type"] == "row" or panel["description"]


def _squares(place: dict[str, int]) -> list[tuple[int, int]]:
    return [(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])]


@pytest.mark.parametrize("path", boards())
def test_every_metric_that_is_asked_for_exists(path: Path) -> None:
    source = "\n".join(file.read_text() for root in ("common", "services") for file in Path(root).rglob("*.py"))
    for panel in panels(json.loads(path.read_text())):
        for target in panel.get("targets", []):
            for name in re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*_[a-z0-9_]+(?=[{\[) ]|$)", target["expr"]):
                assert name.startswith(FOREIGN) or _known(name, source), (panel["title"], name)


def _known(name: str, source: str) -> bool:
    if not name.startswith("dapo_"):
        return True  # a function or a label
    return any(f'"{name.removesuffix(end)}"' in source for end in ("", "_bucket", "_sum", "_count"))


@pytest.mark.parametrize("path", boards())
def test_every_number_of_a_step_that_is_asked_for_is_written_by_the_learner(path: Path) -> None:
    learner = "\n".join(file.read_text() for file in Path("services/learner").glob("*.py"))
    for name in re.findall(r'dapo_learner_value\{name=\\"([a-z0-9_]+)\\"\}', path.read_text()):
        assert f'"{name}"' in learner, name
