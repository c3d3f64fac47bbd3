"""The compose file against a real Docker: trains the demo while containers are killed, and must pass its audit.

    python tests/compose/check.py                         images from their registries; needs Docker and Compose 2.20
    python tests/compose/check.py --local IMAGE           IMAGE instead of python:3.11, Prometheus from its packages

    up, scaled -> every replica is a target of Prometheus -> one stuck, one crashed, one of each role killed
    -> down -> audit -> up: goes on where it was -> the verdict of the run -> down

Prints one line a step with its seconds; exit status 0 if all of it held. Uses its own project name, volumes and port.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
REPLICAS = {"broker": 1, "rollout": 2, "reward": 3, "filter": 1, "learner": 1}
PORT = 19090
STUCK_S = 90
"""Three checks of 10 s and their timeouts of 5 s, after 30 s in which a loop may be silent."""
LIMIT_S = 1200
SCRAPE_S = 7
"""Longer than Prometheus takes to look again: what it says then was so after the kill."""
GO_ON = 3
"""Steps that show that a run goes on."""
CHILD = "int(open('/proc/1/task/1/children').read().split()[0])"

SANDBOX = """
import json
from services.reward.code.sandbox import Program, Sandbox
from services.reward.limits import Limits
programs = [
    "print(input()[::-1])",
    "import socket; socket.create_connection(('broker', 5570), 2); print('reached')",
    "import os; print(os.listdir('/work/runs'))",
    "import os; print(os.fork())",
]
sandbox = Sandbox()
ended = [sandbox.run(Program(source=p, function=""), stdin="abc", arguments=[], limits=Limits()) for p in programs]
print(json.dumps([sandbox.layers, [end.printed.decode().strip() for end in ended]]))
sandbox.close()
"""


class Project:
    """One compose project."""

    def __init__(self, file: Path, environment: dict[str, str]) -> None:
        self._command = ["docker", "compose", "-p", "dapo-check", "-f", str(file), "--env-file", str(ROOT / ".env")]
        self._environment = {**os.environ, **environment}

    def __call__(self, *words: str, check: bool = True) -> str:
        """Stdout of `docker compose WORDS`."""
        result = subprocess.run(
            [*self._command, *words], env=self._environment, text=True, capture_output=True, check=False, cwd=ROOT
        )
        if check and result.returncode:
            raise SystemExit(
                f"docker compose {' '.join(words)} failed:\n{result.stdout[-2000:]}{result.stderr[-4000:]}"
            )
        return result.stdout

    def up(self, *words: str) -> None:
        """Start what does not run, with all replicas."""
        scale = [word for role, number in REPLICAS.items() for word in ("--scale", f"{role}={number}")]
        self("up", "-d", "--no-recreate", *scale, *words)

    def containers(self, role: str) -> list[str]:
        """Ids of the running ones."""
        return self("ps", "-q", role).split()

    def state(self, container: str) -> dict[str, Any]:
        """What Docker says of a container."""
        state: dict[str, Any] = json.loads(docker("inspect", "-f", "{{json .State}}", container))
        return state


def docker(*words: str) -> str:
    """Stdout of `docker WORDS`."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout.strip()


def signal_main(container: str, name: str) -> None:
    """A signal to the service itself, behind the container's init, as if it came from the kernel."""
    code = f"import os, signal; os.kill({CHILD}, signal.{name})"
    docker("exec", container, "python3", "-c", code)


def query(expression: str) -> list[dict[str, Any]]:
    """An instant query; empty while Prometheus does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{PORT}/api/v1/query?query={quote(expression)}", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def step() -> int:
    """Batches trained, as the filter says; -1 while it does not."""
    found = query("max(dapo_run_step)")
    return int(float(found[0]["value"][1])) if found else -1


def targets() -> dict[str, int]:
    """Replicas that Prometheus sees up, by role."""
    found = query("sum by (job) (up)")
    return {row["metric"]["job"]: int(row["value"][1]) for row in found if row["metric"]["job"] in REPLICAS}


def until(what: str, holds: Callable[[], Any], limit_s: float = LIMIT_S) -> None:
    """Wait, and say how long it took."""
    start = time.monotonic()
    while not holds():
        if time.monotonic() - start > limit_s:
            raise SystemExit(
                f"FAILED: after {limit_s:.0f} s it does not hold: {what}; targets {targets()}, step {step()}"
            )
        time.sleep(1)
    say(f"{what} ({time.monotonic() - start:.0f} s)")


def say(text: str) -> None:
    """One line, with the time since the beginning."""
    print(f"{time.monotonic() - BEGIN:6.0f} s  {text}", flush=True)


def goes_on(what: str, before: int) -> None:
    """A few more steps than before."""
    until(f"{what}: goes on from step {before}", lambda: step() >= before + GO_ON)


def check_sandbox(project: Project) -> None:
    """Programs of the verifier `code` are confined in the container: no network, no files, no processes."""
    said = docker("exec", "-w", "/tmp", project.containers("reward")[0], "python3", "-c", SANDBOX)
    layers, results = json.loads(said)
    if not {"landlock", "seccomp"} <= set(layers) or results != ["cba", "", "", ""]:
        raise SystemExit(f"FAILED: programs are not confined: layers {layers}, results {results}")
    say(f"programs are confined by {' and '.join(layers)}")


def check_stuck(project: Project) -> None:
    """A service that hangs is unhealthy within the documented time, and healthy again when it goes on."""
    (container,) = project.containers("filter")
    signal_main(container, "SIGSTOP")
    until("filter stopped: unhealthy", lambda: health(project, container) == "unhealthy", STUCK_S)
    signal_main(container, "SIGCONT")
    until("filter continued: healthy", lambda: health(project, container) == "healthy", STUCK_S)


def health(project: Project, container: str) -> str:
    """`starting`, `healthy` or `unhealthy`."""
    return str(project.state(container)["Health"]["Status"])


def check_crash(project: Project) -> None:
    """A service that dies is started again by Docker."""
    container = project.containers("reward")[0]
    before = project.state(container)["StartedAt"]
    signal_main(container, "SIGKILL")
    until("a reward crashed: restarted", lambda: project.state(container)["StartedAt"] != before)


def check_kill(project: Project, role: str) -> None:
    """`docker kill` counts as the operator's wish, so Docker does not restart; `up` does."""
    before = step()
    docker("kill", project.containers(role)[0])
    time.sleep(SCRAPE_S)
    before = max(before, step())
    project.up()
    goes_on(f"{role} killed", before)


def check_restart(project: Project) -> None:
    """Down and up: the audit of the stopped run passes, and the run goes on where it was."""
    before = step()
    project("down")
    report = json.loads(project("run", "--rm", "--no-deps", "-T", "prepare", "audit", "runs/current"))
    say(f"down: audit ok={report['ok']}, {report['issued']} issued, {report['trained']} trained, {report['lost']} lost")
    if not report["ok"]:
        raise SystemExit(f"FAILED: the audit found {report['violations']}")
    project.up()
    goes_on("down and up", before)


def check(project: Project) -> None:
    """All of it."""
    project("build")
    say("images are built")
    project.up()
    say("containers are started")
    until(f"targets up {REPLICAS}", lambda: targets() == REPLICAS)
    until("first step", lambda: step() >= 1)
    check_sandbox(project)
    check_crash(project)
    check_stuck(project)
    for role in REPLICAS:
        check_kill(project, role)
    check_restart(project)
    (verdict,) = project("ps", "-aq", "verdict").split()
    until("the run is done", lambda: project.state(verdict)["Status"] == "exited")
    print(docker("logs", verdict))
    if project.state(verdict)["ExitCode"]:
        raise SystemExit("FAILED: the verdict of the run")
    (learner,) = project("ps", "-aq", "learner").split()
    until("the learner has ended with it", lambda: project.state(learner)["ExitCode"] == 0, 120)


def main() -> int:
    """Check, then remove everything; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check compose/compose.yaml against a real Docker.")
    parser.add_argument("--local", metavar="IMAGE", help="image with Python 3.11 in place of the public one")
    parser.add_argument("--keep", action="store_true", help="leave containers and volumes of an earlier check alone")
    given = parser.parse_args()
    environment = {"PROMETHEUS_PORT": str(PORT), "GRAFANA_PORT": "13000", "COMPOSE_PROFILES": "cpu"}
    if given.local:
        environment["PYTHON_IMAGE"] = given.local
    project = Project(ROOT / ("tests/compose/compose.yaml" if given.local else "compose.yaml"), environment)
    if not given.keep:
        project("down", "-v")
    check(project)
    project("down", "-v")
    say("PASSED")
    return 0


BEGIN = time.monotonic()

if __name__ == "__main__":
    sys.exit(main())
