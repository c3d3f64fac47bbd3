"""`dapo run` with the real services: vLLM samples, the learner trains; processes are stopped and killed on purpose."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.weights import read_manifest, version_folder
from services.cli.demo.prepare import prepare_demo

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

ROLES = ("rollout", "reward", "filter", "broker", "learner")
CACHE = Path("cache")
LIMIT_S = 240


class Run:
    """A small run of the demo's model in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "r"
        self._config = folder / "c.toml"
        ports = "".join(f"[{role}]\nmetrics_port = -1\n" for role in ("rollout", "reward", "broker"))
        self._config.write_text(
            f'[run]\nname = "r"\nmodel = "{CACHE}/demo-model"\nfolder = "{folder}"\nsteps = 6\ngroups_per_batch = 4\n'
            f'group_size = 8\nmax_prompt_tokens = 32\nmax_response_tokens = 24\nbroker = "tcp://127.0.0.1:{free_port()}"\n'
            f'[filter]\nmetrics_port = -1\ndata = "{CACHE}/demo-train.jsonl"\n'
            f"[learner]\nmetrics_port = -1\nlr = 1e-4\ncheckpoint_every = 2\n{ports}"
        )
        self.process: subprocess.Popen[str] | None = None

    def start(self, *words: str) -> None:
        command = [sys.executable, "-m", "services.cli", "run", str(self._config), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self) -> tuple[int, str]:
        """Exit status and output."""
        assert self.process is not None
        output, _ = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output

    def until_step(self, step: int) -> None:
        self.until(lambda: self.num_steps >= step)

    def until(self, holds: Callable[[], Any]) -> None:
        assert self.process is not None
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    @property
    def num_steps(self) -> int:
        path = self.path / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def pids(self, role: str = "") -> list[int]:
        """Services of this run, by their command line."""
        wanted, found = f"{self.path}/config.toml".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if wanted in words and f"services.{role}".encode() in b" ".join(words):
                found.append(int(entry.name))
        return found

    def kill(self, role: str) -> None:
        """kill -9, and wait until the supervisor has started the service again."""
        (pid,) = self.pids(role)
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.pids(role) not in ([], [pid]))

    def audit(self) -> dict[str, Any]:
        answer = subprocess.run(
            [sys.executable, "-m", "services.cli", "audit", str(self.path)], capture_output=True, text=True, check=False
        )
        report: dict[str, Any] = json.loads(answer.stdout)
        assert (answer.returncode == 0) == report["ok"]
        return report


def dapo(*words: str) -> str:
    """Stdout of a command that must succeed."""
    command = [sys.executable, "-m", "services.cli", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert result.returncode == 0, result.stderr
    return result.stdout


def environment(pid: int) -> list[bytes]:
    """The variables that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def _model() -> None:
    prepare_demo(CACHE, lambda text, share: None)


@pytest.fixture
def run(tmp_path: Path, _model: None) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    if run.process is not None and run.process.poll() is None:
        run.process.kill()
        run.process.communicate()
    deadline = time.monotonic() + 10
    while run.pids() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.pids() == [], "a service outlived its supervisor"


@pytest.mark.timeout(600)
def test_a_run_ends_by_itself_is_not_overwritten_and_can_be_given_more_steps(run: Run) -> None:
    run.start()
    status, output = run.finish()
    assert status == 0, output
    assert run.audit()["trained"] == 6 * 4

    run.start()
    status, output = run.finish()
    assert status == 2
    assert "--resume" in output

    run.start("--resume", "learner.lr=1")
    status, output = run.finish()
    assert status == 2
    assert "learner.lr (0.0001, now 1" in output

    run.start("--resume", "run.steps=8")
    status, output = run.finish()
    assert status == 0, output
    report = run.audit()
    assert report["ok"], report["violations"]
    assert (report["steps"], report["trained"], report["lost"]) == (8, 8 * 4, 0)


@pytest.mark.timeout(600)
def test_a_run_is_evaluated_and_its_export_is_the_same_policy(run: Run, tmp_path: Path) -> None:
    run.start("run.steps=2")
    status, output = run.finish()
    assert status == 0, output
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join((CACHE / "demo-held-out.jsonl").read_text().splitlines(keepends=True)[:60]))
    of_run = dapo("eval", str(run.path), "--data", str(rows), "--json")
    dapo("export", str(run.path), str(tmp_path / "exported"))
    config = run.path / "config.toml"
    of_export = dapo("eval", str(config), f"run.model={tmp_path}/exported", "--data", str(rows), "--json")
    first, second = json.loads(of_run), json.loads(of_export)
    assert (first["step"], first["rows"], first["errors"], first["dead"]) == (2, 60, 0, 0)
    assert first["digest"] == second["digest"]  # the weights that vLLM was given, bit for bit
    assert first["avg@1"] == second["avg@1"] > 0.1
    assert (run.path / "weights" / "v000002").exists()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_every_service_and_the_supervisor_may_be_killed_and_nothing_is_lost(run: Run) -> None:
    run.start("run.steps=16")
    run.until_step(1)
    for role in ROLES:
        run.kill(role)
        run.until_step(run.num_steps + 1)
    assert run.process is not None
    run.process.kill()
    run.process.communicate()
    run.start("run.steps=16", "--resume")
    status, output = run.finish()
    assert status == 0, output
    report = run.audit()
    assert report["ok"], report["violations"]
    assert (report["steps"], report["trained"]) == (16, 16 * 4)
    assert (report["lost"], report["trained_twice"]) == (0, 0)
    assert report["greatest_age"] <= report["max_staleness"]


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_learner_of_two_ranks_survives_the_death_of_one(run: Run) -> None:
    run.start("run.steps=8", "learner.ranks=2")
    run.until_step(3)
    rank1 = [pid for pid in run.pids("learner") if b"RANK=1" in environment(pid)]
    assert len(rank1) == 1
    os.kill(rank1[0], signal.SIGKILL)
    status, output = run.finish()
    assert status == 0, output
    report = run.audit()
    assert report["ok"], report["violations"]
    assert (report["steps"], report["trained"], report["lost"]) == (8, 8 * 4, 0)
    names = sorted(path.name for path in (run.path / "checkpoints" / "step-000008").iterdir())
    assert names[0] == "DONE"
    assert [name[:11] for name in names[1:3]] == ["shard-00001", "shard-00002"]


@pytest.mark.timeout(600)
def test_ctrl_c_stops_everything_with_status_130_and_loses_nothing(run: Run) -> None:
    run.start("run.steps=1000")
    run.until_step(2)
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    status, output = run.finish()
    assert status == 130, output
    assert output.rstrip().endswith("`--resume` goes on from here")
    report = run.audit()
    assert report["ok"], report["violations"]
    assert report["left"] > 0


@pytest.mark.timeout(600)
def test_a_run_with_keys_a_weight_server_and_deltas_survives_the_death_of_its_learner(run: Run) -> None:
    keys = run.path.parent / "keys"
    dapo("keys", str(keys))
    run.start(
        f"run.keys={keys}", f"run.weights=tcp://127.0.0.1:{free_port()}", "weights.metrics_port=-1",
        "learner.publish_dtype=bfloat16", "learner.lr=1e-5", "learner.snapshot_every=4", "learner.keep_versions=9",
        "rollout.dtype=bfloat16", "rollout.rolling=true",
    )  # fmt: skip
    run.until_step(3)
    os.kill(run.pids("learner")[0], signal.SIGKILL)
    status, output = run.finish()
    assert status == 0, output
    report = run.audit()
    assert report["ok"], report["violations"]
    store = run.path / "weights"
    bases = [read_manifest(version_folder(store, version)).base for version in range(7)]
    assert bases[0] is None
    assert bases[1] == 0
    text = (run.path / "config.toml").read_text()
    assert not any((keys / role / "secret").read_text().strip() in text for role in ROLES)
