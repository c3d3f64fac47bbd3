"""The manifests as kubectl builds them, against Kubernetes' published schemas, and the claims that are made of them."""

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "compose" / "kubernetes"
VERSIONS = ("1.30", "1.37")
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
"""Resources of the Prometheus operator, whose schemas are no package."""

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl, which has kustomize in it, is not installed"
)


@functools.cache
def built(overlay: str) -> list[dict[str, Any]]:
    result = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER / overlay)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [resource for resource in yaml.safe_load_all(result.stdout) if resource]


def of_kind(overlay: str, kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in built(overlay) if found["kind"] == kind}


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    """Pod specification by role."""
    return {
        resource["metadata"]["name"]: resource["spec"]["template"]["spec"]
        for resource in built(overlay)
        if resource["kind"] in ("Deployment", "StatefulSet", "Job")
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", ["base", "full"])
def test_every_resource_is_what_its_schema_says(overlay: str, version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for resource in built(overlay):
        if resource["kind"] not in CUSTOM:
            validator.validate(resource, version, strict=True)


def test_a_resource_with_a_misspelt_field_is_refused() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    resource = yaml.safe_load(yaml.safe_dump(of_kind("base", "Deployment")["rollout"]))
    resource["spec"]["replica"] = 3
    with pytest.raises(validator.ValidationError):
        validator.validate(resource, VERSIONS[0], strict=True)


def test_every_role_is_there_once() -> None:
    assert set(pods("base")) == {"broker", "rollout", "reward", "filter", "learner"}
    assert set(of_kind("base", "Deployment")) == {"rollout", "reward", "filter"}
    assert of_kind("base", "Deployment")["filter"]["spec"]["strategy"] == {"type": "Recreate"}
    assert of_kind("base", "StatefulSet")["broker"]["spec"]["replicas"] == 1
    assert of_kind("base", "Job")["learner"]["spec"]["completionMode"] == "Indexed"


@pytest.mark.parametrize("overlay", ["base", "full"])
def test_pods_meet_the_restricted_standard(overlay: str) -> None:
    for pod in pods(overlay).values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_every_service_is_restarted_when_its_loop_is_stuck_but_not_while_a_model_is_loaded() -> None:
    for pod in pods("base").values():
        (container,) = pod["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    for role in ("rollout", "learner"):
        probe = pods("base")[role]["containers"][0]["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 1800


def test_several_machines_are_one_torchrun_job_that_meets_at_pod_0() -> None:
    job = of_kind("full", "Job")["learner"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert (job["completions"], job["parallelism"]) == (2, 2)
    assert container["command"] == ["torchrun"]
    assert "--node-rank=$(JOB_COMPLETION_INDEX)" in container["args"]
    assert "--master-addr=learner-0.learner" in container["args"]
    assert job["template"]["spec"]["subdomain"] == "learner"
    for probe in ("startupProbe", "livenessProbe"):  # only rank 0 has a port
        assert "httpGet" not in container[probe]


def test_what_runs_programs_of_the_model_reaches_the_broker_and_nothing_else() -> None:
    labels = {"app": "dapo", "role": "reward"}
    reached = [
        name
        for name, policy in of_kind("base", "NetworkPolicy").items()
        if policy["spec"].get("egress") and selects(policy["spec"]["podSelector"], labels)
    ]
    assert sorted(reached) == ["names", "to-queues"]
    assert of_kind("base", "NetworkPolicy")["nothing"]["spec"]["podSelector"] == {}


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    by_name = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    by_set = all(labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", []))
    return by_name and by_set


def test_every_replica_is_a_target_under_the_name_of_its_role() -> None:
    monitor = of_kind("full", "ServiceMonitor")["dapo"]["spec"]
    assert monitor["jobLabel"] == "role"
    services = of_kind("full", "Service")
    for name, service in services.items():
        assert service["metadata"]["labels"] == {"app": "dapo", "role": name}
        assert "metrics" in [port["name"] for port in service["spec"]["ports"]]
    assert set(services) == set(pods("full"))


def test_the_run_of_the_cluster_is_a_configuration() -> None:
    from common import config
    from services.cli.processes import read_sections

    sections = read_sections(config.read(FOLDER / "base" / "run.toml"))
    assert sections["run"].broker == "tcp://broker:5570"
    assert all(sections[role].metrics_host == "0.0.0.0" for role in pods("base"))
