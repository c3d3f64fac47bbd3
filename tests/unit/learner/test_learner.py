"""The learner without its queues."""

import dataclasses
from pathlib import Path

import pytest
import torch

from common import weights
from common.errors import UserError
from common.history import History
from services.learner.config import LearnerConfig
from services.learner.learner import Learner
from tests.unit.learner.batches import CONFIG, batch, make_learner, make_run, train
from tests.unit.learner.models import tiny_policy


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, updates_per_batch=2)])
def test_a_learner_that_died_and_resumed_has_the_weights_of_one_that_did_not_bit_for_bit(
    tmp_path: Path, config: LearnerConfig
) -> None:
    expected = train(make_learner(make_run(tmp_path / "whole"), config), range(4))
    run = make_run(tmp_path / "killed")
    first = make_learner(run, config)
    before = train(first, range(2))
    first.save()
    train(first, range(2, 3))  # trained, published, and lost with the process
    resumed = make_learner(run, config)
    assert resumed.step == 2
    assert before + train(resumed, range(2, 4)) == expected
    # the version that was published twice was kept once, and is the same
    assert weights.read_manifest(weights.version_folder(run.path / "weights", 3)).digest == expected[2]


def test_a_resumed_learner_has_the_random_state_of_its_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    learner = make_learner(run)
    train(learner, range(1))
    learner.save()
    expected = torch.rand(3)
    torch.manual_seed(99)
    make_learner(run)
    assert torch.equal(torch.rand(3), expected)


def test_a_resumed_learner_continues_its_schedule(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    learner = make_learner(run)
    train(learner, range(1))
    learner.save()
    metrics, _ = make_learner(run).train(*batch(1))
    assert metrics["lr"] == pytest.approx(1e-3 * 2 / 3)  # the second of three warm-up steps


def test_equal_log_probabilities_keep_the_contract(tmp_path: Path) -> None:
    learner = make_learner(make_run(tmp_path), dataclasses.replace(CONFIG, contract_limit=1e-3))
    metrics, feedback = learner.train(*batch(0, policy=tiny_policy()))
    assert metrics["engine_difference"] < 1e-5
    assert (feedback.step, feedback.version, [g.id for g in feedback.groups]) == (0, 1, ["0/000000", "0/000001"])


def test_an_engine_that_disagrees_stops_the_run_before_anything_is_trained(tmp_path: Path) -> None:
    learner = make_learner(make_run(tmp_path), dataclasses.replace(CONFIG, contract_limit=1e-3))
    with pytest.raises(
        UserError, match=r"disagree at step 0: .* is 0\.05, the limit is 0\.001; .*weights or the dtype"
    ):
        learner.train(*batch(0, policy=tiny_policy(), shift=0.05))
    assert learner.step == 0


def test_an_engine_that_leaves_the_temperature_out_is_told_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, temperature=0.6)
    config = dataclasses.replace(CONFIG, contract_limit=1e-3)
    policy = tiny_policy(temperature=0.6)
    history = History(run.path / "history", "learner-0")
    learner = Learner(run=run, config=config, policy=policy, tokenizer=None, history=history)
    with pytest.raises(UserError, match="leave the temperature out"):
        learner.train(*batch(0, policy=tiny_policy(temperature=1.0)))
