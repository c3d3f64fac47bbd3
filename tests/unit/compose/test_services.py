"""Claims about compose/compose.yaml, which has no test but this and tests/compose/check.py."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.broker.config import BrokerConfig
from services.cli.__main__ import VERBS
from services.filter.config import FilterConfig
from services.learner.config import LearnerConfig
from services.reward.config import RewardConfig
from services.rollout.config import RolloutConfig

ROOT = Path(__file__).parents[3]
FILE = ROOT / "compose" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if str(service["image"]).startswith("dapo-")]
LONG_LIVED = [name for name in OURS if SERVICES[name].get("restart") != "no"]
PORTS = {
    "broker": BrokerConfig().metrics_port,
    "rollout": RolloutConfig().metrics_port,
    "reward": RewardConfig().metrics_port,
    "filter": FilterConfig(data="x").metrics_port,
    "learner": LearnerConfig().metrics_port,
}


def role(name: str) -> str:
    return name.removesuffix("-gpu")


def networks(name: str) -> set[str]:
    return set(SERVICES[name]["networks"])


def test_both_profiles_have_the_whole_pipeline() -> None:
    for profile in ("cpu", "gpu"):
        roles = {role(name) for name, service in SERVICES.items() if profile in service.get("profiles", [profile])}
        assert roles >= {*PORTS, "prepare", "verdict", "prometheus", "grafana"}, profile


def test_the_cpu_profile_is_what_starts_without_edits() -> None:
    assert "COMPOSE_PROFILES=cpu" in (ROOT / ".env").read_text().splitlines()
    included = yaml.safe_load((ROOT / "compose.yaml").read_text())["include"]
    assert included == [{"path": "compose/compose.yaml", "project_directory": "."}]


def has_compose() -> bool:
    command = ["docker", "compose", "version", "--short"]
    if shutil.which("docker") is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
@pytest.mark.parametrize(("profile", "rollout"), [((), "rollout"), (("--profile", "gpu"), "rollout-gpu")])
def test_compose_reads_the_file_from_the_root_without_edits(profile: tuple[str, ...], rollout: str) -> None:
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "DAPO_"))}
    command = ["docker", "compose", *profile, "config", "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=settings)
    assert result.returncode == 0, result.stderr
    resolved = json.loads(result.stdout)
    assert resolved["name"] == "dapo"
    services = resolved["services"]
    assert [name for name in services if role(name) == "rollout"] == [rollout]
    contexts = {service["build"]["context"] for service in services.values() if "build" in service}
    assert contexts == {str(ROOT)}


def test_replicas_cannot_clash() -> None:
    # A fixed container name or a published port exists once.
    for name in OURS:
        assert "container_name" not in SERVICES[name]
        assert "ports" not in SERVICES[name]
    for name in ("rollout", "rollout-gpu", "reward"):
        assert "--replica host" in SERVICES[name]["command"]


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "dcgm-exporter"])
def test_every_container_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert service["pids_limit"] > 0
    assert re.search(r"\d[gm]\}?$", service["mem_limit"])
    assert not service.get("privileged")
    assert "docker.sock" not in str(service)


def test_no_image_runs_as_root() -> None:
    text = (ROOT / "compose" / "Dockerfile").read_text()
    for stage in ("service", "cpu", "gpu"):
        (body,) = re.findall(rf"^FROM \S+ AS {stage}\n(.*?)(?=^FROM|\Z)", text, re.M | re.S)
        assert "USER 10001:10001" in body
    assert re.findall(r"^FROM (\$\{\w+\})", text, re.M) == ["${PYTHON_IMAGE}", "${VLLM_IMAGE}"]


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 2
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_what_judges_programs_has_no_way_out_and_sees_no_model_or_token() -> None:
    assert networks("reward") == {"queue"}
    assert COMPOSE["networks"]["queue"] == {"internal": True}
    assert "secrets" not in SERVICES["reward"]
    assert not any("cache" in volume for volume in SERVICES["reward"]["volumes"])
    assert "noexec" in SERVICES["reward"]["tmpfs"][0]


@pytest.mark.parametrize("name", LONG_LIVED)
def test_a_health_check_uses_what_the_image_holds_and_asks_the_services_own_port(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"] == ["CMD", "python3", "-m", "common.endpoint", str(PORTS[role(name)])]


@pytest.mark.parametrize("name", ["rollout", "rollout-gpu", "learner", "learner-gpu"])
def test_loading_a_model_is_no_illness(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["start_period"] == "30m"
    assert "shm_size" in SERVICES[name]


@pytest.mark.parametrize("name", LONG_LIVED)
def test_a_service_that_crashes_is_restarted_and_one_that_is_stopped_may_finish_its_step(name: str) -> None:
    assert SERVICES[name]["restart"] == "on-failure"
    assert SERVICES[name]["stop_grace_period"] == "${DAPO_GRACE:-60s}"


def test_learner_and_rollouts_have_gpus_of_their_own() -> None:
    def devices(name: str) -> list[str]:
        (reservation,) = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
        return list(reservation["device_ids"])

    assert devices("learner-gpu") == ["${DAPO_LEARNER_GPUS:-0}"]
    assert devices("rollout-gpu") == ["${DAPO_ROLLOUT_GPUS:-1}"]
    assert "rollout.claims=/work/claims" in SERVICES["prepare-gpu"]["command"]
    assert "claims:/work/claims" in SERVICES["rollout-gpu"]["volumes"]


def test_every_command_is_a_verb() -> None:
    for name in OURS:
        assert SERVICES[name]["command"].split()[0] in VERBS


def test_prometheus_finds_every_replica_of_every_service_by_name() -> None:
    config = yaml.safe_load((ROOT / "compose" / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    for name, port in PORTS.items():
        (found,) = jobs[name]["dns_sd_configs"]
        assert (found["names"], found["type"], found["port"]) == ([name], "A", port)
    for name in ("rollout-gpu", "learner-gpu"):
        assert SERVICES[name]["networks"]["queue"]["aliases"] == [role(name)]


def test_the_example_has_every_setting_with_its_default() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    example = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", FILE.read_text()))
    assert {name: example.get(name) for name in used} == used
    assert set(example) == {*used, "COMPOSE_PROFILES"}


def test_secrets_are_files() -> None:
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    names = [key for service in SERVICES.values() for key in service.get("environment", {})]
    assert not [name for name in names if re.search("TOKEN|PASSWORD|SECRET|KEY", name) and not name.endswith("_PATH")]
