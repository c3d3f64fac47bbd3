"""`dapo learner CONFIG`: train the policy."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common.client import connect
from common.life import Process, serve
from services.learner.config import LearnerConfig


async def run(process: Process[LearnerConfig]) -> None:
    """Load or resume the learner, then train until cancelled."""
    _set_environment(process.run.model, process.config.threads)
    from services.learner.learner import Learner
    from services.learner.report import MetricsFile
    from services.learner.service import LearnerService

    learner = await asyncio.to_thread(Learner.start, run=process.run, config=process.config, history=process.history)
    process.history.append("resumed", step=learner.step)
    metrics = MetricsFile(process.run.path / "metrics.jsonl", step=learner.step)
    async with connect(process.run.broker, process.name, heartbeat_s=process.run.heartbeat_s) as client:
        service = LearnerService(
            client=client,
            learner=learner,
            metrics=metrics,
            steps=process.run.steps,
            checkpoint_every=process.config.checkpoint_every,
        )
        await service.run()


def _set_environment(model: str, threads: int) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if Path(model).exists():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the learner; returns the exit status."""
    return serve("learner", LearnerConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
