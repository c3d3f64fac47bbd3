"""Every query of every dashboard, put to a real Prometheus that watched a real short run, brings data."""

import json
import math
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.cli.demo.prepare import prepare_demo

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(900)]
CACHE = Path("cache")
ROLES = ("broker", "rollout", "reward", "filter", "learner")
BOARDS = sorted(Path("grafana/dashboards").glob("*.json"))
RATE = "10s"
"""In place of Grafana's $__rate_interval."""


class Watched:
    """A finished run, and the Prometheus that scraped it every second."""

    def __init__(self, address: str, start: float) -> None:
        self.address, self.start = address, start

    def series(self, expr: str) -> list[dict[str, Any]]:
        """What a query brings over the whole run; raises for one that Prometheus refuses."""
        words = urllib.parse.urlencode(
            {"query": expr.replace("$__rate_interval", RATE), "start": self.start, "end": time.time(), "step": "2"}
        )
        with urllib.request.urlopen(f"{self.address}/api/v1/query_range?{words}") as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")
    folder = tmp_path_factory.mktemp("watched")
    prepare_demo(CACHE, lambda text, share: None)
    port, broker, *ports = free_ports(2 + len(ROLES))
    jobs = [{"job_name": role, "static_configs": [{"targets": [f"127.0.0.1:{p}"]}]}
            for role, p in zip(ROLES, ports, strict=True)]  # fmt: skip
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    start = time.time()
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            _run(folder, broker, dict(zip(ROLES, ports, strict=True)))
            yield Watched(f"http://127.0.0.1:{port}", start)
        finally:
            server.terminate()


def _run(folder: Path, broker: int, ports: dict[str, int]) -> None:
    """Of the demo's model, with the adaptive sampler."""
    words = [f"{role}.metrics_port={port}" for role, port in ports.items()]
    command = [
        sys.executable, "-m", "services.cli", "run", "configs/demo.toml", f"run.folder={folder}", "run.name=r",
        f"run.broker=tcp://127.0.0.1:{broker}", "run.steps=24", "filter.eval_every=12", "filter.sampling=signal",
        *words,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> list[Any]:
    """(expression) of every target of every panel."""
    found = []
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                found.append(pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}"))
    return found


@pytest.mark.parametrize("expr", queries())
def test_a_query_brings_numbers(watched: Watched, expr: str) -> None:
    values = [float(value) for series in watched.series(expr) for _, value in series["values"]]
    assert any(map(math.isfinite, values)), expr


def test_a_query_that_names_nothing_brings_nothing(watched: Watched) -> None:
    assert watched.series("dapo_no_such_metric") == []
    with pytest.raises(urllib.error.HTTPError):
        watched.series("sum(")
