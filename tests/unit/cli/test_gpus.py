from pathlib import Path
from typing import Any

import pytest

from common import config
from common.errors import UserError
from services.cli.gpus import assigned, visible
from services.cli.processes import read_sections, specs
from services.learner.config import LearnerConfig
from services.rollout.config import RolloutConfig


def sections(ranks: int, replicas: int, **rollout: Any) -> dict[str, Any]:
    return {"learner": LearnerConfig(ranks=ranks), "rollout": RolloutConfig(replicas=replicas, **rollout)}


def test_the_learner_gets_the_first_gpus_and_every_rollout_its_own() -> None:
    assert assigned([str(n) for n in range(8)], sections(4, 2, tensor_parallel_size=2)) == {
        "learner-0": "0,1,2,3", "rollout-0": "4,5", "rollout-1": "6,7",
    }  # fmt: skip


def test_gpus_that_the_user_named_are_the_only_ones() -> None:
    assert visible({"CUDA_VISIBLE_DEVICES": "3, 5"}) == ["3", "5"]
    assert visible({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert assigned(["3", "5"], sections(1, 1)) == {"learner-0": "3", "rollout-0": "5"}


def test_without_a_gpu_nothing_is_said() -> None:
    assert assigned([], sections(1, 1)) == {}


def test_one_gpu_is_shared_if_the_engine_leaves_room() -> None:
    assert assigned(["0"], sections(1, 2, gpu_memory_utilization=0.25)) == {
        "learner-0": "0", "rollout-0": "0", "rollout-1": "0",
    }  # fmt: skip


def test_too_few_gpus_are_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"needs 5 GPUs \(4 of the learner, 1 x 1 of the rollouts\), 4 are visible"):
        assigned(["0", "1", "2", "3"], sections(4, 1))


@pytest.mark.parametrize(("given", "order"), [({}, "PCI_BUS_ID"), ({"CUDA_VISIBLE_DEVICES": "3,5"}, None)])
def test_cuda_counts_as_the_driver_lists_unless_the_user_counted(given: dict[str, str], order: str | None) -> None:
    read = read_sections(config.read(Path(__file__).parents[3] / "configs" / "demo.toml"))
    found = specs(read, run_folder=Path("r"), mark="m", environment=given, gpus={"learner-0": "3", "rollout-0": "5"})
    by_name = {spec.name: spec.environment for spec in found}
    assert by_name["rollout-0"]["CUDA_VISIBLE_DEVICES"] == "5"
    assert by_name["rollout-0"].get("CUDA_DEVICE_ORDER") == order
    assert by_name["filter-0"].get("CUDA_VISIBLE_DEVICES") == given.get("CUDA_VISIBLE_DEVICES")
    assert "CUDA_DEVICE_ORDER" not in by_name["filter-0"]
