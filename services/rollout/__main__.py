"""`dapo rollout CONFIG`: sample groups with vLLM. Settings and GPUs are chosen here, before vLLM is imported."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.client import connect_to_broker
from common.config import RunConfig
from common.gpus import visible_gpus
from common.keys import client_keys
from common.life import Process, serve
from services.rollout import claims
from services.rollout.config import RolloutConfig

if TYPE_CHECKING:
    from services.rollout.engine import Engine
    from services.rollout.service import Prompter, Weights
    from services.rollout.stream import Stream

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
    from services.rollout.hostcopy import HostCopy

    with contextlib.closing(HostCopy(_remote(process.run))) as copy:
        if process.config.engine == "scripted":
            from services.rollout.scripted import ScriptedEngine, ScriptedTemplate

            plain = ScriptedTemplate(process.run.model)
            await _serve(process, ScriptedEngine(process.config.scripted, plain), plain, copy)
        else:
            await _with_vllm(process, copy)


async def _with_vllm(process: Process[RolloutConfig], weights: "Weights") -> None:
    set_environment(process.run.model)
    if process.config.claims:
        await claim_gpus(Path(process.config.claims), process.config.tensor_parallel_size)
    from services.rollout.template import Template
    from services.rollout.vllm_engine import VllmEngine

    template = Template.of_model(process.run.model, template=process.run.template_text)
    engine = await VllmEngine.start(process.run, process.config, stop_token_ids=template.stop_token_ids)
    try:
        await _serve(process, engine, template, weights)
    finally:
        engine.close()


async def _serve(process: Process[RolloutConfig], engine: "Engine", template: "Prompter", weights: "Weights") -> None:
    """Join the engine to the queues."""
    from services.rollout.rolling import no_turn, turn
    from services.rollout.service import Rollout

    async with connect_to_broker(process.run, process.name) as client:
        rollout = Rollout(
            client=client,
            engine=engine,
            weights=weights,
            turn=turn if process.config.rolling else no_turn,
            template=template,
            history=process.history,
            replica=process.name,
            max_groups=process.config.max_groups,
            max_prompt_tokens=process.run.max_prompt_tokens,
            group_timeout_s=process.config.group_timeout_s,
        )
        await rollout.run()


def _remote(run: RunConfig) -> "Callable[[], Stream] | None":
    """How to reach the weight server, if there is one."""
    from services.rollout.stream import Stream

    if not run.weights:
        return None
    keys = client_keys(run.keys, "rollout", server="weights")
    return lambda: Stream(run.weights, keys)


async def claim_gpus(folder: Path, number: int) -> None:
    """Take GPUs that no other replica has, and show CUDA no others; waits while all are taken."""
    gpus = visible_gpus()
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
