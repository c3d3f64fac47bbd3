"""How fast a step was against what the machine can do, and where its seconds went.

    FLOPs of a step = 6 (body parameters x tokens + head parameters x response tokens) + 6 L_layers D sum_i length_i^2

forward and backward of the model itself (2 + 4 operations per parameter and token); what is computed twice to save
memory does not count, nor is a prompt counted again for every sample. The peak is measured, not looked up: a square
matrix product in the dtype that the layers use.
Source of the counting: PaLM (arXiv 2204.02311), appendix B, with causal attention at half the cost.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from services.learner.model import Policy
from services.learner.packing import num_tokens
from services.learner.samples import TrainSample

SIZES = {"cpu": 1024, "cuda": 8192}


class Stopwatch:
    """Seconds by phase."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Account for the block; on a GPU its work is waited for."""
        start = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds[name] += time.perf_counter() - start


def matmul_peak(device: torch.device, dtype: torch.dtype, repeats: int = 5) -> float:
    """FLOP/s of the best of some square matrix products."""
    size = SIZES.get(device.type, 1024)
    a = torch.ones(size, size, device=device, dtype=dtype)
    watch = Stopwatch(device)
    best = float("inf")
    for _ in range(repeats + 1):
        watch.seconds.clear()
        with watch.phase("product"):
            torch.mm(a, a)
        best = min(best, watch.seconds["product"])
    return 2 * size**3 / best


class FlopCount:
    """FLOPs of a model's forward and backward pass."""

    def __init__(self, policy: Policy) -> None:
        head = policy.model.get_output_embeddings().weight.numel()
        tied = policy.model.get_input_embeddings().weight is policy.model.get_output_embeddings().weight
        total = sum(parameter.numel() for parameter in policy.model.parameters())
        self._head = head
        self._body = total - head if tied else total - 2 * head
        config = policy.model.config
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        self._attention = config.num_hidden_layers * width

    def step(self, samples: Sequence[TrainSample]) -> float:
        """FLOPs of one pass, forward and backward, over the samples."""
        tokens = num_tokens(samples, range(len(samples)))
        responses = sum(len(sample.response_T) for sample in samples)
        squares = sum(sample.length**2 for sample in samples)
        return 6.0 * (self._body * tokens + self._head * responses + self._attention * squares)
