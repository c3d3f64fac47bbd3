"""Samples to micro-batches by a budget of tokens, and micro-batches to tensors without padding.

    samples of one optimizer step --plan--> rank -> micro-batches --pack--> one packed sequence each

    [prompt 1][response][response] ... [prompt 2][response] ...         a prompt stands once for all its samples

Samples of one prompt stay together as far as the budget lets them. Micro-batches are filled to equal numbers of tokens,
the largest bundle first into the emptiest (the LPT rule), and dealt to the ranks in order of size, so that ranks which
wait for each other at every layer carry the same load. Every rank gets the same number; one that has no sample left
runs a blank.

S = samples of the micro-batch, L = their tokens, N = their response tokens. The loss picks response positions by index,
never by token id (a padding id may equal the stop token).
"""

import heapq
from collections.abc import Iterable, Sequence
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
    total = num_tokens(samples, places)
    bundles = _bundles(samples, places, most=min(budget // 2, -(-total // (4 * ranks))))
    count = max(1, -(-total // budget))
    while True:
        count = -(-count // ranks) * ranks
        parts = _balanced(samples, bundles, count)
        if all(len(part) < 2 or num_tokens(samples, part) <= budget for part in parts):
            break
        if count >= len(bundles):  # bundles of one sample each always fit, or stand alone
            bundles = [[place] for place in places]
        count += max(1, count // 20)
    parts.sort(key=lambda part: -num_tokens(samples, part))
    return [parts[rank::ranks] for rank in range(ranks)]


def num_tokens(samples: Sequence[TrainSample], places: Iterable[int]) -> int:
    """Tokens of the packed samples: every response, and every prompt once."""
    places = list(places)
    prompts = {samples[place].prompt_P.tobytes(): len(samples[place].prompt_P) for place in places}
    return sum(prompts.values()) + sum(len(samples[place].response_T) for place in places)


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
    layout = _lay_out(chosen)
    mask_N = np.concatenate([s.mask_T for s in chosen])

    def to(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(
        input_ids_L=to(layout.ids_L),
        position_L=to(layout.position_L),
        segments=segments([s.length for s in chosen], device, layout.expand_E if layout.shares else None),
        source_N=to(layout.source_N),
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


class _Layout(NamedTuple):
    """Where everything stands in the packed sequence."""

    ids_L: NDArray[np.int64]
    position_L: NDArray[np.int64]
    expand_E: NDArray[np.int64]
    source_N: NDArray[np.int64]
    shares: bool


def _lay_out(chosen: Sequence[TrainSample]) -> _Layout:
    """Each prompt at its first sample, each response behind what stands already."""
    starts: dict[bytes, int] = {}
    ids, positions, expand, sources = [], [], [], []
    end = 0
    for sample in chosen:
        num_prompt, key = len(sample.prompt_P), sample.prompt_P.tobytes()
        if key not in starts:
            starts[key] = end
            ids.append(sample.prompt_P)
            positions.append(np.arange(num_prompt))
            end += num_prompt
        prompt = np.arange(starts[key], starts[key] + num_prompt)
        response = np.arange(end, end + len(sample.response_T))
        ids.append(sample.response_T)
        positions.append(np.arange(num_prompt, sample.length))
        expand += [prompt, response]
        sources.append(np.concatenate([prompt[-1:], response[:-1]]))
        end += len(response)
    return _Layout(
        ids_L=np.concatenate(ids).astype(np.int64),
        position_L=np.concatenate(positions),
        expand_E=np.concatenate(expand),
        source_N=np.concatenate(sources),
        shares=len(starts) < len(chosen),
    )


def _bundles(samples: Sequence[TrainSample], places: Sequence[int], *, most: int) -> list[list[int]]:
    """Samples of one prompt together, in bundles of at most `most` tokens or of one sample."""
    bundles: list[list[int]] = []
    open_bundles: dict[bytes, list[int]] = {}
    for place in places:
        key = samples[place].prompt_P.tobytes()
        bundle = open_bundles.get(key)
        if bundle is None or num_tokens(samples, [*bundle, place]) > most:
            bundle = open_bundles[key] = []
            bundles.append(bundle)
        bundle.append(place)
    return bundles


def _balanced(samples: Sequence[TrainSample], bundles: Sequence[list[int]], count: int) -> list[list[int]]:
    """`count` parts, some perhaps empty: each bundle, largest first, to the part with the fewest tokens."""
    parts: list[list[int]] = [[] for _ in range(count)]
    prompts: list[set[bytes]] = [set() for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    sized = sorted((-num_tokens(samples, bundle), bundle) for bundle in bundles)
    for size, bundle in sized:
        tokens, number = heapq.heappop(heap)
        prompt_P = samples[bundle[0]].prompt_P
        shared = len(prompt_P) if prompt_P.tobytes() in prompts[number] else 0
        prompts[number].add(prompt_P.tobytes())
        parts[number] += bundle
        heapq.heappush(heap, (tokens - size - shared, number))
    return parts
