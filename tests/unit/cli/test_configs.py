"""The configurations that come with the repository are complete and right, as far as no model is needed."""

from pathlib import Path

import pytest

from common import config
from services.cli.gpus import assigned
from services.cli.processes import read_sections

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_is_read(path: Path) -> None:
    sections = read_sections(config.read(path))
    assert sections["run"].name == path.stem


@pytest.mark.parametrize(("name", "gpus"), [("qwen-7b-dapo", 8), ("qwen-32b-paper", 16)])
def test_the_gpus_of_the_documentation_are_just_enough(name: str, gpus: int) -> None:
    (path,) = [path for path in CONFIGS if path.stem == name]
    shares = assigned([str(number) for number in range(gpus)], read_sections(config.read(path)))
    assert sorted(",".join(shares.values()).split(","), key=int) == [str(number) for number in range(gpus)]


def test_the_papers_recipe_is_the_papers() -> None:
    # arXiv 2503.14476, section 4.1: 512 prompts, 16 responses, 16 updates, lr 1e-6, 20480 tokens with a cache of 4096
    (path,) = [path for path in CONFIGS if path.stem == "qwen-32b-paper"]
    sections = read_sections(config.read(path))
    run, learner, reward = sections["run"], sections["learner"], sections["reward"]
    assert (run.groups_per_batch, run.group_size, run.max_response_tokens, run.temperature) == (512, 16, 20480, 1.0)
    assert (learner.updates_per_batch, learner.lr, learner.weight_decay, learner.warmup_steps) == (16, 1e-6, 0.1, 20)
    assert (learner.objective, learner.eps_low, learner.eps_high, learner.kl_coef) == ("dapo", None, None, 0.0)
    assert (reward.overlong_buffer, reward.reward_correct, reward.reward_wrong) == (4096, 1.0, -1.0)
