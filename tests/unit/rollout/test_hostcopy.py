from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from common import weights
from common.messages import Policy
from services.learner.publisher import Publisher
from services.learner.ranks import World
from services.rollout.engine import LoadRefusedError
from services.rollout.hostcopy import HostCopy
from tests.unit.learner.models import tiny_policy


class Run:
    """A learner that publishes, and what it announces."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.policy = tiny_policy()
        self.publisher = Publisher(
            policy=self.policy, world=World(), store=store, dtype=torch.bfloat16, snapshot_every=4
        )
        self.version = -1

    def publish(self) -> Policy:
        self.version += 1
        manifest = self.publisher.publish(self.version)
        assert manifest is not None
        announced = self.announced(manifest.digest)
        self.expected = {name: p.detach().bfloat16() for name, p in self.policy.named_parameters().items()}
        with torch.no_grad():
            self.policy.model.model.norm.weight[self.version % 32] += 1
        return announced

    def announced(self, digest: str) -> Policy:
        folder = weights.version_folder(self.store, self.version)
        return Policy(version=self.version, digest=digest, path=str(folder))

    def is_in(self, path: Path) -> bool:
        """Whether the file holds the newest version, as the engine's workers read it."""
        with safe_open(path, framework="pt") as file:
            return all(torch.equal(file.get_tensor(name), tensor) for name, tensor in self.expected.items())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "weights")


def test_every_version_arrives_whole_whether_snapshot_or_delta(run: Run) -> None:
    copy = HostCopy()
    for _ in range(10):
        assert run.is_in(copy.prepare(run.publish()))


def test_versions_that_were_missed_are_made_up_for(run: Run) -> None:
    copy = HostCopy()
    copy.prepare(run.publish())
    for _ in range(2):
        run.publish()
    assert run.is_in(copy.prepare(run.publish()))
    assert run.is_in(HostCopy().prepare(run.publish()))


def test_a_snapshot_in_a_folder_is_not_copied(run: Run) -> None:
    assert HostCopy().prepare(run.publish()) == weights.version_folder(run.store, 0) / weights.TENSORS


def test_the_copy_is_memory_that_vanishes_with_its_process(run: Run) -> None:
    copy = HostCopy()
    run.publish()
    path = copy.prepare(run.publish())
    assert "memfd:dapo-weights (deleted)" in str(path.readlink())


def test_a_torn_delta_is_refused_and_the_next_version_is_taken(run: Run) -> None:
    copy = HostCopy()
    copy.prepare(run.publish())
    copy.prepare(run.publish())
    announced = run.publish()
    path = weights.version_folder(run.store, 2) / weights.DELTA
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(LoadRefusedError, match=r"version 2 cannot be taken: .*tensor model\.norm\.weight"):
        copy.prepare(announced)
    path.write_bytes(good)
    assert run.is_in(copy.prepare(announced))


def test_a_renamed_tensor_is_refused_by_name(run: Run) -> None:
    copy = HostCopy()
    copy.prepare(run.publish())
    tensors = dict(run.expected)
    tensors["model.norm.other"] = tensors.pop("model.norm.weight")
    run.version += 1
    manifest = weights.publish(run.store, 1, lambda path: save_file(tensors, path))
    with pytest.raises(LoadRefusedError, match=r"tensor model\.norm\.other is .*, the model has no such tensor"):
        copy.prepare(run.announced(manifest.digest))


def test_a_version_that_is_not_the_one_announced_is_refused(run: Run) -> None:
    run.publish()
    with pytest.raises(LoadRefusedError, match="does not have the digest that was announced"):
        HostCopy().prepare(run.announced("0" * 64))


def test_a_folder_that_cannot_be_read_here_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LoadRefusedError, match=r"share the folder, or set \[run\] weights to a weight server"):
        HostCopy().prepare(Policy(version=1, digest="0" * 64, path=str(tmp_path / "v000001")))
