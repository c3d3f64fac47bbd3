"""Samples to micro-batches by a budget of tokens, and micro-batches to tensors without padding.

    samples of one optimizer step --plan--> rank -> micro-batches --pack--> one packed sequence each

Micro-batches are filled to equal numbers of tokens, longest sample first into the emptiest (the LPT rule), and dealt to
the ranks in order of size, so that ranks which wait for each other at every layer carry the same load. Every rank gets
the same number; one that has no sample left runs a blank.

S = samples of the micro-batch, L = their tokens, N = their response tokens. The loss picks response positions by index,
never by token id (a padding id may equal the stop token).
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.learner.attention import Segments, segments
from services.learner.samples import TrainSample

BLANK = TrainSample(
    group=0,
    prompt_P=np.zeros(1, dtype=np.int32),
    response_T=np.zeros(1, dtype=np.int32),
    mu_logp_T=np.zeros(1, dtype=np.float32),
    version_T=np.full(1, -1, dtype=np.int64),
    mask_T=np.zeros(1, dtype=np.bool_),
    advantage=0.0,
)
"""A sample that trains nothing and counts nowhere."""


class MicroBatch(NamedTuple):
    """Tensors of one forward and backward pass."""

    input_ids_L: Tensor
    position_L: Tensor
    """Place of each token in its own sample."""
    segments: Segments
    source_N: Tensor
    """Place in L whose hidden state predicts the token."""
    target_N: Tensor
    sample_N: Tensor
    """Sample of each token, from 0."""
    mu_logp_N: Tensor
    advantage_N: Tensor
    mask_N: Tensor
    """1.0 where the token is trained."""
    weight_N: Tensor
    """Share of each token in the loss of the optimizer step (normaliser.py); 0 where it is not trained."""
    version_N: Tensor
    group_N: Tensor
    """Place in the batch of each token's group."""
    order: list[int]
    """Places of the samples in the list that was planned; empty for a blank."""


def plan(
    samples: Sequence[TrainSample], places: Sequence[int], *, budget: int, ranks: int = 1
) -> list[list[list[int]]]:
    """For every rank the micro-batches it runs, as places of samples; a sample longer than the budget stands alone."""
    lengths = {place: samples[place].length for place in places}
    count = max(1, -(-sum(lengths.values()) // budget))
    while True:
        count = -(-count // ranks) * ranks
        parts = _balanced(lengths, count)
        if count >= len(lengths) or all(len(p) < 2 or sum(lengths[i] for i in p) <= budget for p in parts):
            break
        count += 1
    parts.sort(key=lambda part: -sum(lengths[place] for place in part))
    return [parts[rank::ranks] for rank in range(ranks)]


def pack(
    samples: Sequence[TrainSample],
    places: Sequence[int],
    device: torch.device,
    weights: Sequence[float] | None = None,
) -> MicroBatch:
    """The tensors of the samples at `places`; `weights[place]` is the share in the loss of each trained token."""
    chosen = [samples[place] for place in places] or [BLANK]
    shares = [1.0 if weights is None else weights[place] for place in places] or [0.0]
    lengths = [len(sample.response_T) for sample in chosen]
    starts = np.cumsum([0, *(sample.length for sample in chosen)])
    sources = [
        np.arange(start + len(s.prompt_P) - 1, start + s.length - 1) for start, s in zip(starts, chosen, strict=False)
    ]
    mask_N = np.concatenate([s.mask_T for s in chosen])

    def to(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(
        input_ids_L=to(np.concatenate([part for s in chosen for part in (s.prompt_P, s.response_T)]).astype(np.int64)),
        position_L=to(np.concatenate([np.arange(s.length) for s in chosen])),
        segments=segments([s.length for s in chosen], device),
        source_N=to(np.concatenate(sources)),
        target_N=to(np.concatenate([s.response_T for s in chosen]).astype(np.int64)),
        sample_N=to(np.repeat(np.arange(len(chosen)), lengths)),
        mu_logp_N=to(np.concatenate([s.mu_logp_T for s in chosen]).astype(np.float32)),
        advantage_N=to(np.repeat([s.advantage for s in chosen], lengths)),
        mask_N=to(mask_N.astype(np.float32)),
        weight_N=to(np.repeat(shares, lengths) * mask_N),
        version_N=to(np.concatenate([s.version_T for s in chosen])),
        group_N=to(np.repeat([s.group for s in chosen], lengths)),
        order=list(places),
    )


def _balanced(lengths: dict[int, int], count: int) -> list[list[int]]:
    """`count` parts, some perhaps empty: each sample, longest first, to the part with the fewest tokens."""
    heap = [(0, part) for part in range(count)]
    parts: list[list[int]] = [[] for _ in range(count)]
    for place in sorted(lengths, key=lambda place: (-lengths[place], place)):
        tokens, part = heapq.heappop(heap)
        parts[part].append(place)
        heapq.heappush(heap, (tokens + lengths[place], part))
    return parts
