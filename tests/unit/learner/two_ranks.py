"""What the tests of several ranks run under torchrun: one learner step, a checkpoint, the gathered weights.

torchrun --nproc-per-node R -m tests.unit.learner.two_ranks JOBS.json      writes each job's `out` from rank 0
"""

import dataclasses
import json
import sys
import warnings
from pathlib import Path

import torch

from services.learner import checkpoint, publishing
from services.learner.checkpoint import Counters
from services.learner.config import LearnerConfig
from services.learner.model import Policy
from services.learner.optimizer import Optimizer
from services.learner.publisher import Publisher
from services.learner.ranks import World, world_of_torchrun
from services.learner.sharding import shard, whole
from services.learner.step import Trainer
from tests.unit.learner.models import make_samples, tiny_policy

warnings.filterwarnings("ignore", message="FSDP2-wrapped module")


def run(job: dict, world: World) -> dict:
    """One job on every rank; what rank 0 found."""
    torch.set_num_threads(1)
    config = LearnerConfig(**job["config"])
    policy = tiny_policy(dtype=getattr(torch, job["dtype"]))
    if world.size > 1:
        shard(policy, config, world.size)
    optimizer = Optimizer(policy.trained_parameters(), config)
    if job["sgd"]:  # Adam's first step turns the rounding of a vanishing gradient into a step of full size
        optimizer._adamw = torch.optim.SGD(policy.trained_parameters().values(), lr=config.lr)
    reference = tiny_policy(dtype=getattr(torch, job["dtype"]), seed=5).freeze() if config.kl_coef else None
    trainer = Trainer(policy, optimizer, config, max_tokens=64, world=world, reference=reference)
    if job.get("resume"):
        path = checkpoint.newest(Path(job["folder"]))
        assert path is not None
        checkpoint.load(path, tensors(policy, optimizer), world)
        optimizer.continue_from(updates=checkpoint.read_counters(path).updates, skips=0)
    metrics = {}
    for step in range(job["first"], job["first"] + job["steps"]):
        samples = make_samples(job["lengths"], seed=step, version=step)
        num_groups = max(sample.group for sample in samples) + 1
        result = trainer.step(samples, step=step, num_groups=num_groups)
        metrics = result.tally.metrics() | {"grad_norm": result.updates[-1].grad_norm}
        metrics["feedback"] = result.tally.per_group()  # type: ignore[assignment]
    if job.get("save"):
        counters = Counters(step=job["steps"], updates=optimizer.updates, skips=0, rng=b"")
        checkpoint.save(Path(job["folder"]), tensors(policy, optimizer), counters, world, keep=2)
    if job.get("publish"):
        return publish(job, world, policy)
    weights = [float(x) for t in publishing.published(policy, torch.float32) for x in t.make().flatten()]
    exact = [float(x) for p in policy.named_parameters().values() for x in whole(p.detach()).flatten()]
    return {"metrics": metrics, "weights": weights, "exact": exact}


def publish(job: dict, world: World, policy: Policy) -> dict:
    """Five versions, the weights nudged between; digests, and those of the bytes that a reader ends with."""
    store = Path(job["out"]).with_suffix(f".store{world.size}")
    publisher = Publisher(policy=policy, world=world, store=store, dtype=torch.bfloat16, snapshot_every=3)
    manifests = []
    for version in range(5):
        manifests.append(publisher.publish(version))
        with torch.no_grad():
            for place, parameter in enumerate(policy.named_parameters().values()):
                parameter.mul_(1 + 2e-4 * ((version + place) % 3))
    return {
        "digests": [m.digest for m in manifests if m],
        "bases": [m.base for m in manifests if m],
        "store": str(store),
    }


def tensors(policy, optimizer):  # type: ignore[no-untyped-def]
    model = {f"model/{name}": p.detach() for name, p in policy.trained_parameters().items()}
    return model | optimizer.state()


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    with world_of_torchrun() as world:
        for job in jobs:
            found = run(job, world)
            if world.leads:
                Path(job["out"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()


def job(folder: Path, name: str, **changes: object) -> dict:
    """A job with the usual settings."""
    config = dataclasses.asdict(LearnerConfig(lr=1e-4, warmup_steps=0, micro_batch_tokens=64))
    config |= changes.pop("config", {})  # type: ignore[call-overload]
    return {
        "config": config, "dtype": "float32", "sgd": False, "first": 0, "steps": 1,
        "folder": str(folder / "checkpoints"), "out": str(folder / f"{name}.json"),
        "lengths": [1, 17, 3, 29, 8, 8, 2, 23, 5, 11, 30, 1], **changes,
    }  # fmt: skip
