"""One process against two, joined by torchrun and gloo, sharded by FSDP2: the same losses, gradients and weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.image import forward
from common.sources import Folder
from services.learner.ranks import World
from tests.unit.learner import two_ranks
from tests.unit.learner.two_ranks import job

ROOT = Path(__file__).parents[3]

GSPO = {"objective": "gspo", "updates_per_batch": 2, "kl_coef": 0.1, "entropy_coef": 0.01}


def jobs(folder: Path) -> dict[str, dict]:
    """What two ranks do, in this order."""
    named: dict[str, dict] = {
        "double": {"dtype": "float64", "sgd": True},
        "gspo": {"config": GSPO, "sgd": True},
        "offload": {"config": {"cpu_offload": True}, "sgd": True},
        "one sample": {"lengths": [7], "config": {"micro_batch_tokens": 1000}},
        "save": {"steps": 2, "save": True},
        "publish": {"publish": True},
        "resume": {"first": 2, "steps": 1, "resume": True},
    }
    return {name: job(folder, name, **changes) for name, changes in named.items()}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict]]:
    """A folder, and what two ranks found."""
    folder = tmp_path_factory.mktemp("ranks")
    described = jobs(folder)
    path = folder / "jobs.json"
    path.write_text(json.dumps(list(described.values())))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*command, "-m", "tests.unit.learner.two_ranks", str(path)], cwd=ROOT, check=False, capture_output=True,
        text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=200,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    return folder, {name: json.loads(Path(job["out"]).read_text()) for name, job in described.items()}


def alone(description: dict) -> dict:
    return two_ranks.run(description, World())


def differ(one: dict, other: dict, key: str = "exact") -> float:
    return float((torch.tensor(one[key]) - torch.tensor(other[key])).abs().max())


@pytest.mark.parametrize(("name", "limit"), [("double", 1e-10), ("gspo", 1e-6), ("one sample", 1e-6)])
def test_two_ranks_do_the_step_of_one(two: tuple[Path, dict[str, dict]], name: str, limit: float) -> None:
    folder, found = two
    one = alone(jobs(folder)[name])
    assert differ(one, found[name]) <= limit
    expected, metrics = one["metrics"], found[name]["metrics"]
    for key in ("loss", "entropy", "ess", "rho_p99", "rho_max", "trained_tokens", "mismatch_kl", "reference_kl"):
        assert metrics[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-6), key
    assert metrics["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    for a, b in zip(expected["feedback"], metrics["feedback"], strict=True):
        assert b == pytest.approx(a, rel=1e-5)


def test_offloading_to_the_cpu_changes_nothing(two: tuple[Path, dict[str, dict]]) -> None:
    folder, found = two
    assert differ(alone(job(folder, "plain", sgd=True)), found["offload"]) <= 1e-6


def test_a_checkpoint_of_two_ranks_is_continued_by_one_and_by_two(two: tuple[Path, dict[str, dict]]) -> None:
    folder, found = two
    whole = alone(job(folder, "whole", steps=3))
    assert differ(whole, found["resume"]) <= 1e-6
    assert differ(whole, alone(jobs(folder)["resume"])) <= 1e-6


def test_what_two_ranks_publish_is_the_whole_model(two: tuple[Path, dict[str, dict]]) -> None:
    folder, found = two
    assert found["gspo"]["weights"] == found["gspo"]["exact"]
    assert len(found["gspo"]["weights"]) == len(alone(jobs(folder)["gspo"])["weights"])


def test_two_ranks_publish_the_deltas_of_one(two: tuple[Path, dict[str, dict]]) -> None:
    folder, found = two
    one = alone(jobs(folder)["publish"])
    assert found["publish"]["bases"] == one["bases"] == [None, 0, 1, None, 3]
    assert found["publish"]["digests"] == one["digests"]
    assert len(set(one["digests"])) == 5
    source = Folder(Path(found["publish"]["store"]))
    image = forward(source, 4, image=None, have=None, allocate=lambda size: memoryview(bytearray(size)))
    image.check(source.manifest(4))
