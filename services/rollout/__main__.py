"""`dapo rollout CONFIG`: sample groups with vLLM. Settings and GPUs are chosen here, before vLLM is imported."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common.client import connect
from common.life import Process, serve
from services.rollout import claims
from services.rollout.config import RolloutConfig

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""On a CPU: one thread a process, since processes that spin on the same cores stall each other; and no compiler."""
ALWAYS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"}


CLAIM_WAIT_S = 10.0
"""Between two looks for a free GPU."""

log = logging.getLogger(__name__)


async def run(process: Process[RolloutConfig]) -> None:
    """Start the engine, then serve until cancelled."""
    set_environment(process.run.model)
    if process.config.claims:
        await claim_gpus(Path(process.config.claims), process.config.tensor_parallel_size)
    from services.rollout.service import Rollout
    from services.rollout.template import Template
    from services.rollout.vllm_engine import VllmEngine

    template = Template.of_model(process.run.model, template=process.run.template_text)
    engine = await VllmEngine.start(process.run, process.config, stop_token_ids=template.stop_token_ids)
    try:
        async with connect(process.run.broker, process.name, heartbeat_s=process.run.heartbeat_s) as client:
            rollout = Rollout(
                client=client,
                engine=engine,
                template=template,
                history=process.history,
                replica=process.name,
                max_groups=process.config.max_groups,
                max_prompt_tokens=process.run.max_prompt_tokens,
            )
            await rollout.run()
    finally:
        engine.close()


async def claim_gpus(folder: Path, number: int) -> None:
    """Take GPUs that no other replica has, and show CUDA no others; waits while all are taken."""
    gpus = claims.visible_gpus()
    if not gpus:
        return
    while (claim := claims.take(folder, gpus, number)) is None:
        log.warning("waiting for a free GPU: there are more rollouts than GPUs for them", extra={"gpus": len(gpus)})
        await asyncio.sleep(CLAIM_WAIT_S)
    log.info("GPUs claimed", extra={"gpus": [gpu.uuid for gpu in claim.gpus]})
    os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": claim.visible_devices}


def set_environment(model: str) -> None:
    """Set what vLLM reads at import, unless the user did; a local model needs no hub."""
    gpu = Path("/dev/nvidiactl").exists()
    for key, value in (ALWAYS if gpu else ALWAYS | ENVIRONMENT).items():
        os.environ.setdefault(key, value)
    if Path(model).exists():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rollout; returns the exit status."""
    return serve("rollout", RolloutConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
