"""The engine on vLLM: `AsyncLLM`, continuous batching, weights exchanged between two decode steps.

    load:  pause(keep, clear cache) -> start -> update -> finish(version) -> resume

`clear_cache` makes vLLM drop the prefix cache and prefill the running requests again under the new weights, so a token
after the switch is sampled exactly as a fresh engine on the new weights would. This is the only file that imports vllm,
with transfer.py, which runs inside its workers.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client import Histogram
from vllm import AsyncEngineArgs, SamplingParams
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from common.config import RunConfig
from common.messages import Span
from services.rollout.config import CompressConfig, RolloutConfig
from services.rollout.engine import Completion, EngineError, Request
from services.rollout.transfer import backend_config

LOAD_SECONDS = Histogram(
    "dapo_rollout_load_seconds", "Seconds of a weight update, by phase; requests in flight wait for it.",
    ["phase"],
)  # fmt: skip


class VllmEngine:
    """See services/rollout/engine.py for the contract."""

    def __init__(self, engine: AsyncLLM, *, stop_token_ids: Sequence[int], compress: CompressConfig) -> None:
        self._engine = engine
        self._compress = {"prune": compress.prune, "quantize": compress.quantize}
        self._stop_token_ids = list(stop_token_ids)

    @classmethod
    async def start(cls, run: RunConfig, config: RolloutConfig, *, stop_token_ids: Sequence[int]) -> "VllmEngine":
        """Start vLLM on the starting model; takes seconds to minutes."""
        engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(run, config)))
        await engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info={}))
        await engine.collective_rpc("die_with_parent")
        return cls(engine, stop_token_ids=stop_token_ids, compress=config.compress)

    async def generate(self, request: Request) -> list[Completion]:
        """Sample a group; raises `EngineError` if any of its samples is not whole."""
        parameters = SamplingParams(
            n=request.n,
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            stop_token_ids=self._stop_token_ids,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = {"prompt_token_ids": list(request.prompt_ids)}
        outputs = [output async for output in self._engine.generate(prompt, parameters, request.id)]
        if not outputs or len(outputs[-1].outputs) != request.n:
            raise EngineError(f"group {request.id}: the engine returned no complete output")
        return [completion(request.id, output) for output in outputs[-1].outputs]

    async def load(self, version: int, tensors: Path) -> None:
        """Switch to a version between two decode steps. What fails here ends the process: the model may be torn."""
        start = time.monotonic()
        await self._engine.pause_generation(mode="keep", clear_cache=True)
        LOAD_SECONDS.labels("pause").observe(time.monotonic() - start)
        try:
            with LOAD_SECONDS.labels("update").time():
                await self._engine.start_weight_update()
                update = {"tensors": str(tensors), **self._compress}
                await self._engine.update_weights(WeightTransferUpdateRequest(update_info=update))
                await self._engine.finish_weight_update(weight_version=str(version))
        finally:
            with LOAD_SECONDS.labels("resume").time():
                await self._engine.resume_generation()

    def close(self) -> None:
        """Stop vLLM's processes."""
        self._engine.shutdown()


def engine_arguments(run: RunConfig, config: RolloutConfig) -> dict[str, Any]:
    """What vLLM is told; a CPU runs eagerly with a small cache of its own size."""
    arguments: dict[str, Any] = {
        "model": run.model,
        "dtype": engine_dtype(config),
        "max_model_len": run.max_prompt_tokens + run.max_response_tokens,
        "max_num_seqs": config.max_num_seqs,
        "seed": run.seed,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "disable_log_stats": False,
        "tensor_parallel_size": config.tensor_parallel_size,
        "weight_transfer_config": backend_config(),
        "worker_extension_cls": "services.rollout.transfer.WorkerExtension",
    }
    if current_platform.is_cpu():
        # A prompt must not be prefilled in parts here: vLLM 0.32 then takes a random number back from the request's
        # generator, which a CPU generator cannot do, and the engine dies ("CPU Generator does not use offset").
        return arguments | {
            "enforce_eager": True,
            "kv_cache_memory_bytes": int(config.kv_cache_gib * 2**30),
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(4096, arguments["max_model_len"]),
        }
    return arguments | {
        "enforce_eager": config.enforce_eager,
        "gpu_memory_utilization": config.gpu_memory_utilization,
    }


def engine_dtype(config: RolloutConfig) -> str:
    """The dtype of the engine's weights."""
    if config.dtype != "auto":
        return config.dtype
    return "float32" if current_platform.is_cpu() else "bfloat16"


def completion(request: str, output: Any) -> Completion:
    """vLLM's output of one sample; raises `EngineError` if it was aborted or lacks log-probabilities."""
    if output.finish_reason not in ("stop", "length"):
        raise EngineError(f"group {request}: a sample ended by {output.finish_reason}")
    if output.logprobs is None or len(output.logprobs) != len(output.token_ids):
        raise EngineError(f"group {request}: the engine returned no log-probability for some tokens")
    token_ids = list(output.token_ids)
    return Completion(
        token_ids=token_ids,
        logprobs=[step[token].logprob for step, token in zip(output.logprobs, token_ids, strict=True)],
        finish=output.finish_reason,
        spans=[Span(version=int(s.version), start=s.start, end=s.end) for s in output.weight_versions],
    )
