"""Attention over packed samples: causal within a sample, blind to all others; a shared prompt stands once.

    packed      P P | a a a | b b              two samples of one prompt, no padding
    expanded    P P a a a | P P b b            what attention sees: lengths = [5, 4]
    a CPU       one causal SDPA per sample: no mask, no score of a masked pair is computed
    a GPU       one variable-length FlashAttention call (torch.nn.attention.varlen), cumulative lengths on the device;
                float32, which it does not know, goes the CPU's way

Queries, keys and values are expanded before the attention and its outputs collapsed after it, so that a prompt goes
through every other part of the model once for all its samples. Exact: a causal model computes the same each time.

Registered with transformers under the name `packed`, so it serves every model whose attention is pluggable. Scores that
are bent inside the attention (soft-capping, sinks) are not covered and refused.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from common.errors import UserError

NAME = "packed"
NOT_COVERED = ("softcap", "s_aux", "position_bias")
"""Arguments by which a model changes its attention scores."""


class Segments(NamedTuple):
    """Where the samples begin and end. S samples, L packed tokens, E expanded tokens."""

    lengths: list[int]
    bounds_S1: Tensor
    """Cumulative lengths, from 0: int32, S + 1 values."""
    longest: int
    expand_E: Tensor | None = None
    """Packed place of each expanded token; None where nothing is shared and both are the same."""
    collapse_L: Tensor | None = None
    """An expanded place of each packed token."""


def segments(lengths: list[int], device: torch.device, expand: NDArray[np.int64] | None = None) -> Segments:
    """The segments of samples with these (expanded) lengths; `expand` as in `Segments`."""
    bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    if expand is None:
        return Segments(lengths, bounds.to(device), max(lengths))
    _, collapse = np.unique(expand, return_index=True)
    shared = (torch.from_numpy(index).to(device) for index in (expand, collapse))
    return Segments(lengths, bounds.to(device), max(lengths), *shared)


def register() -> None:
    """Make `packed` known to transformers; harmless when repeated."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, _no_mask)


def packed_attention(
    module: nn.Module,
    query_BHLD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    segments: Segments | None = None,
    **changes: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it. B = 1, H query heads, K key heads, L tokens, D head size.

    Raises `UserError` for a model that changes its scores in a way that is not covered.
    """
    for name in NOT_COVERED:
        if changes.get(name) is not None:
            raise UserError(f"[run] model: its attention uses `{name}`, which the learner does not cover")
    assert segments is not None, "packed attention needs the lengths of the samples"
    assert attention_mask is None
    qkv = query_BHLD, key_BKLD, value_BKLD
    if segments.expand_E is not None:
        qkv = tuple(t.index_select(2, segments.expand_E) for t in qkv)
    attend = _varlen if value_BKLD.is_cuda and value_BKLD.dtype.itemsize == 2 else _one_by_one
    window = None if sliding_window is None or sliding_window >= segments.longest else sliding_window
    gqa = key_BKLD.shape[1] != query_BHLD.shape[1]
    output_BEHD = attend(qkv, segments, window, scale=scaling, enable_gqa=gqa)
    return output_BEHD if segments.collapse_L is None else output_BEHD.index_select(1, segments.collapse_L), None


def _one_by_one(qkv: tuple[Tensor, Tensor, Tensor], segments: Segments, window: int | None, **options: Any) -> Tensor:
    """One causal SDPA per sample."""
    parts = zip(*(t.split(segments.lengths, dim=2) for t in qkv), strict=True)
    return torch.cat([_causal(q, k, v, window, **options) for q, k, v in parts], dim=2).transpose(1, 2)


def _causal(q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor, window: int | None, **options: Any) -> Tensor:
    num_tokens = q_BHTD.shape[2]
    if window is None or num_tokens <= window:
        return F.scaled_dot_product_attention(q_BHTD, k_BKTD, v_BKTD, is_causal=True, **options)
    place = torch.arange(num_tokens, device=q_BHTD.device)
    distance_TT = place[:, None] - place[None, :]
    seen_TT = (distance_TT >= 0) & (distance_TT < window)
    return F.scaled_dot_product_attention(q_BHTD, k_BKTD, v_BKTD, attn_mask=seen_TT, **options)


def _varlen(qkv: tuple[Tensor, Tensor, Tensor], segments: Segments, window: int | None, **options: Any) -> Tensor:
    """FlashAttention over cumulative lengths. Written against torch 2.13's interface, not run here.

    Under autocast rotary angles turn queries and keys to float32 again; the kernel wants all in the values' dtype.
    """
    from torch.nn.attention.varlen import varlen_attn

    q_LHD, k_LKD, v_LKD = (t[0].transpose(0, 1).to(qkv[2].dtype) for t in qkv)
    bounds, longest = segments.bounds_S1, segments.longest
    span = (-1 if window is None else window - 1, 0)
    output = varlen_attn(q_LHD, k_LKD, v_LKD, bounds, bounds, longest, longest, window_size=span, **options)
    assert isinstance(output, Tensor)
    return output[None]


def _no_mask(*_: Any, **__: Any) -> None:
    """`packed` reads lengths; a mask of [tokens, tokens] is never made."""
