"""`dapo learner CONFIG`: train the policy."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import config, life
from common.client import connect_to_broker
from common.errors import UserError
from common.life import Process
from services.learner import launch
from services.learner.config import LearnerConfig

if TYPE_CHECKING:
    from services.learner.crew import Lead
    from services.learner.learner import Learner


async def run(process: Process[LearnerConfig]) -> None:
    """Load or resume the learner, then train until cancelled; on ranks above 0 do what rank 0 says."""
    _set_environment(process.run.model, process.config.threads)
    from services.learner.crew import Lead, follow
    from services.learner.ranks import world_of_torchrun
    from services.learner.start import start

    with world_of_torchrun() as world:
        history = process.history if world.leads else None
        learner = await asyncio.to_thread(start, run=process.run, config=process.config, history=history, world=world)
        if not world.leads:
            await life.uncancelled(asyncio.to_thread(follow, learner, world))
            return
        process.history.append("resumed", step=learner.step)
        if world.size == 1:
            await _serve(process, learner)
            return
        lead = Lead(learner, world)
        try:
            await _serve(process, lead)
        finally:
            lead.stop()


async def _serve(process: Process[LearnerConfig], learner: "Learner | Lead") -> None:
    """Join the learner to the queues."""
    from services.learner.report import MetricsFile
    from services.learner.service import LearnerService

    metrics = MetricsFile(process.run.path / "metrics.jsonl", step=learner.step)
    async with connect_to_broker(process.run, process.name) as client:
        service = LearnerService(
            client=client,
            learner=learner,
            metrics=metrics,
            steps=process.run.steps,
            checkpoint_every=process.config.checkpoint_every,
            folder=process.run.path,
            record=process.config.record_batches,
            disk_wait_s=process.config.disk_wait_s,
            stall_s=process.run.stall_s,
        )
        await service.run()


def _set_environment(model: str, threads: int) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if Path(model).exists():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _read(argv: Sequence[str]) -> LearnerConfig:
    """The configuration; the default where it cannot be read, which the service itself will say."""
    given = life.arguments("learner", argv)
    try:
        return config.section(config.read(given.config, given.overrides), "learner", LearnerConfig)
    except UserError:
        return LearnerConfig()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the learner, or the processes of its ranks; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not launch.is_launched():
        own = _read(argv)
        if own.ranks > 1 or own.cpu_offload:  # FSDP2 needs a process group, of one if need be
            return launch.launch(own.ranks, argv)
    elif os.environ["RANK"] != "0":
        argv += ["learner.metrics_port=-1", "--replica", f"0-rank-{os.environ['RANK']}"]
    return life.serve("learner", LearnerConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
