"""`dapo rollout CONFIG`: sample groups with vLLM. The settings of vLLM are set here, before it is imported."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.client import connect_to_broker
from common.config import RunConfig
from common.keys import client_keys
from common.life import Process, serve
from services.rollout.config import RolloutConfig

if TYPE_CHECKING:
    from services.rollout.stream import Stream

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""On a CPU: one thread a process, since processes that spin on the same cores stall each other; and no compiler."""
ALWAYS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"}


async def run(process: Process[RolloutConfig]) -> None:
    """Start the engine, then serve until cancelled."""
    set_environment(process.run.model)
    from services.rollout.hostcopy import HostCopy
    from services.rollout.rolling import no_turn, turn
    from services.rollout.service import Rollout
    from services.rollout.template import Template
    from services.rollout.vllm_engine import VllmEngine

    template = Template.of_model(process.run.model, template=process.run.template_text)
    copy = HostCopy(_remote(process.run))
    engine = await VllmEngine.start(process.run, process.config, stop_token_ids=template.stop_token_ids)
    try:
        async with connect_to_broker(process.run, process.name) as client:
            rollout = Rollout(
                client=client,
                engine=engine,
                weights=copy,
                turn=turn if process.config.rolling else no_turn,
                template=template,
                history=process.history,
                replica=process.name,
                max_groups=process.config.max_groups,
                max_prompt_tokens=process.run.max_prompt_tokens,
            )
            await rollout.run()
    finally:
        copy.close()
        engine.close()


def _remote(run: RunConfig) -> "Callable[[], Stream] | None":
    """How to reach the weight server, if there is one."""
    from services.rollout.stream import Stream

    if not run.weights:
        return None
    keys = client_keys(run.keys, "rollout", server="weights")
    return lambda: Stream(run.weights, keys)


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
