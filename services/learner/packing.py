"""Samples to micro-batches by a budget of tokens, and micro-batches to tensors.

Samples are sorted by length and cut so that `rows * longest` stays within the budget: similar lengths share a
micro-batch, and little is padding. Padding is on the right, so causal attention never sees it and no mask is needed;
the loss picks response positions by index, never by token id (a padding id may equal the stop token).

S = samples of the micro-batch, L = longest of them, N = response tokens of the micro-batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from services.learner.samples import TrainSample


class MicroBatch(NamedTuple):
    """Tensors of one forward and backward pass."""

    input_ids_SL: Tensor
    row_N: Tensor
    """Sample (row) of each response token."""
    column_N: Tensor
    """Position whose hidden state predicts the token."""
    target_N: Tensor
    mu_logp_N: Tensor
    advantage_N: Tensor
    mask_N: Tensor
    """1.0 where the token is trained."""
    version_N: Tensor
    group_N: Tensor
    """Place in the batch of each token's group."""
    order: list[int]
    """Places of the samples in the list that was split."""


def split(samples: Sequence[TrainSample], *, budget: int) -> list[list[int]]:
    """Places of the samples by micro-batch, longest first; a sample longer than the budget stands alone."""
    order = sorted(range(len(samples)), key=lambda place: (-samples[place].length, place))
    parts: list[list[int]] = []
    for place in order:
        longest = samples[parts[-1][0]].length if parts else 0
        if parts and (len(parts[-1]) + 1) * longest <= budget:
            parts[-1].append(place)
        else:
            parts.append([place])
    return parts


def pack(samples: Sequence[TrainSample], places: Sequence[int], device: torch.device) -> MicroBatch:
    """The tensors of the samples at `places`."""
    chosen = [samples[place] for place in places]
    longest = max(sample.length for sample in chosen)
    ids_SL = np.zeros((len(chosen), longest), dtype=np.int64)
    rows, columns = [], []
    for row, sample in enumerate(chosen):
        ids_SL[row, : sample.length] = np.concatenate([sample.prompt_P, sample.response_T])
        rows.append(np.full(len(sample.response_T), row))
        columns.append(np.arange(len(sample.prompt_P) - 1, sample.length - 1))
    lengths = [len(sample.response_T) for sample in chosen]
    return MicroBatch(
        input_ids_SL=_to(ids_SL, device),
        row_N=_to(np.concatenate(rows), device),
        column_N=_to(np.concatenate(columns), device),
        target_N=_to(np.concatenate([s.response_T for s in chosen]).astype(np.int64), device),
        mu_logp_N=_to(np.concatenate([s.mu_logp_T for s in chosen]).astype(np.float32), device),
        advantage_N=_to(np.repeat([s.advantage for s in chosen], lengths).astype(np.float32), device),
        mask_N=_to(np.concatenate([s.mask_T for s in chosen]).astype(np.float32), device),
        version_N=_to(np.concatenate([s.version_T for s in chosen]), device),
        group_N=_to(np.repeat([s.group for s in chosen], lengths), device),
        order=list(places),
    )


def _to(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
