"""Snapshots of a run: scraped from a real /metrics endpoint, read from real files."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from services.cli import view
from services.cli.ports import Endpoint
from services.cli.reader import Reader
from services.cli.scrape import Number, Numbers, scrape
from services.cli.shares import Growth, shares
from services.cli.snapshot import read_rows


class Service:
    """A process that shows metrics."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.seconds = Counter("dapo_stage_seconds_total", "s", ["stage", "state"], registry=registry)
        self.tokens = Counter("dapo_rollout_tokens_total", "t", registry=registry)
        self.items = Gauge("dapo_queue_items", "i", ["queue", "state"], registry=registry)
        Gauge("python_other", "not ours", registry=registry).set(1)
        self.server, self.thread = start_http_server(0, "127.0.0.1", registry)
        self.endpoint = Endpoint(name="rollout-0", host="127.0.0.1", port=self.server.server_port, key="k")


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.server.shutdown()
    service.server.server_close()
    service.thread.join()


def test_a_scrape_has_the_numbers_of_our_services_only(service: Service) -> None:
    service.tokens.inc(7)
    numbers = scrape([service.endpoint])
    assert numbers.total("dapo_rollout_tokens_total") == 7
    assert numbers.of("python_other") == []


def test_a_service_that_does_not_answer_is_left_out(service: Service) -> None:
    gone = Endpoint(name="gone", host="127.0.0.1", port=1, key="k")
    service.tokens.inc(7)
    assert scrape([gone, service.endpoint]).total("dapo_rollout_tokens_total") == 7


def test_growth_is_the_difference_to_the_scrape_before_and_starts_anew_after_a_restart() -> None:
    growth, labels = Growth(), {"stage": "reward"}
    seen = [10.0, 15.0, 3.0]  # restarted between the second and the third
    grown = [growth.since_last(Numbers([Number("reward-0", "n", labels, value)]), "n")[0].value for value in seen]
    assert grown == [10.0, 5.0, 3.0]


def test_growth_keeps_replicas_apart() -> None:
    growth = Growth()
    for value in (5.0, 6.0):
        numbers = Numbers([Number("rollout-0", "n", {}, value), Number("rollout-1", "n", {}, 2 * value)])
        grown = growth.since_last(numbers, "n")
    assert [number.value for number in grown] == [1.0, 2.0]


def test_shares_are_parts_of_the_measured_time() -> None:
    assert shares({"busy": 1.0, "starved": 3.0}) == {"busy": 0.25, "starved": 0.75}
    assert shares({"busy": 0.0}) == {"busy": 0.0}


def test_a_snapshot_joins_files_and_metrics_and_keeps_the_stages(service: Service, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "accuracy": 0.25}\n{"step": 1, "accuracy": 0.5}\n{"torn')
    (tmp_path / "evals.jsonl").write_text('{"version": 0, "accuracy": 0.1}\n{"version": 2, "accuracy": 0.4}\n')
    service.seconds.labels("rollout", "busy").inc(3)
    service.seconds.labels("rollout", "starved").inc(1)
    service.items.labels("groups", "ready").set(2)
    service.items.labels("groups", "leased").set(3)
    service.items.labels("groups", "dead").set(9)
    reader = Reader(tmp_path, 10, [service.endpoint])
    reader.read()
    service.seconds.labels("rollout", "busy").inc(4)
    snapshot = reader.read()
    assert (snapshot.step, snapshot.newest("accuracy"), snapshot.queued("groups")) == (2, 0.5, 5)
    assert snapshot.seconds["rollout"] == {"busy": 7.0, "starved": 1.0, "blocked": 0.0}
    assert json.loads((tmp_path / "stages.json").read_text()) == {
        "rollout": {"busy": 7.0, "starved": 1.0, "blocked": 0.0}
    }
    text = view.line(snapshot, {"rollout-0": 2})
    # 7 of 8 s busy
    for part in ("step 2/10", "accuracy 0.50", "held-out 0.10 -> 0.40 (version 2)", "rollout 88%", "restarts 2"):
        assert part in text


def test_a_run_of_which_nothing_is_known_yet_can_be_shown(tmp_path: Path) -> None:
    snapshot = Reader(tmp_path, 10, []).read()
    assert view.line(snapshot, {}).startswith("step 0/10  accuracy -  held-out -")


def test_the_tail_of_a_long_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "pad": "x" * 100}) + "\n" for step in range(5000)))
    rows = read_rows(path, tail=True)
    assert 1000 < len(rows) < 4000
    assert rows[-1]["step"] == 4999
    assert len(read_rows(path)) == 5000
