"""How published weights enter vLLM's workers: a weight-transfer backend that maps a file.

    update_weights({"tensors": FILE})  ->  layerwise reload  ->  refresh packed heads

vLLM imports this module in each of its worker processes (`worker_extension_cls`), which registers the backend there.
Sources: vllm/distributed/weight_transfer/base.py, vllm/model_executor/model_loader/reload.

Two traps of vLLM 0.32 on a CPU are handled: linear weights are packed away, so tensors cannot be copied in place (the
layerwise reload can); and a tied output head keeps its old packed copy after that reload, so it is packed again.
"""

import ctypes
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from vllm.config import WeightTransferConfig
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from services.rollout.compress import Compression, Grid, compressed

BACKEND = "dapo_store"
PR_SET_PDEATHSIG = 1


def backend_config() -> WeightTransferConfig:
    """The engine argument that selects this backend."""
    return WeightTransferConfig(backend=BACKEND)


@dataclass
class StoreInit(WeightTransferInitInfo):
    """Nothing to agree on beforehand: every update names its file."""


@dataclass
class StoreUpdate(WeightTransferUpdateInfo):
    """A safetensors file, which the rollout has checked (hostcopy.py), and what is done to it (compress.py)."""

    tensors: str
    prune: float = 0.0
    quantize: Grid = ""


class StoreEngine(WeightTransferEngine[StoreInit, StoreUpdate]):
    """Reads tensors from the file into the model of one worker."""

    init_info_cls = StoreInit
    update_info_cls = StoreUpdate

    def init_transfer_engine(self, init_info: StoreInit) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        """Make the parameters loadable again."""
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: StoreUpdate) -> None:
        """Load every tensor of the version; raises `ValueError` naming parameters that it does not cover."""
        how = Compression(prune=update_info.prune, quantize=update_info.quantize)
        tensors = read_tensors(Path(update_info.tensors))
        loaded = self.model.load_weights((name, compressed(name, tensor, how)) for name, tensor in tensors)
        missing = {name for name, _ in self.model.named_parameters()} - set(loaded)
        if self.model_config.hf_config.tie_word_embeddings:
            missing = {name for name in missing if not name.endswith("lm_head.weight")}
        if missing:
            raise ValueError(f"{update_info.tensors} does not cover {', '.join(sorted(missing)[:3])}")

    def finish_weight_update(self) -> None:
        """Process the loaded weights as at start-up."""
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu():
            for module in self.model.modules():
                if isinstance(module, ParallelLMHead):
                    module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        """Nothing to release."""


def read_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a version, mapped rather than read."""
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - safe_open is not a mapping
            yield name, file.get_tensor(name)


class WorkerExtension:
    """Mixed into vLLM's worker class; its import is what registers the backend in the worker's process."""

    def die_with_parent(self) -> None:
        """End this process when the rollout that started it dies, even by SIGKILL: its memory must come back."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, StoreEngine)
