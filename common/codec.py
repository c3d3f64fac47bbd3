"""Messages to frames and back.

    frames = encode(group, Arrays(...))          # header first, arrays as raw little-endian frames
    group, arrays = decode_group(frames)

Refuses, with `WireError`, whatever does not decode: types, lengths and numbers beyond the limits of messages.py
(NaN and infinity among them), arrays whose byte length does not fit the header, log-probabilities that are not finite.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.errors import WireError
from common.messages import Batch, Feedback, Group, Policy, Prompt, RunState, Scored

Frames = list[bytes]
Int32s = NDArray[np.int32]
Float32s = NDArray[np.float32]

Message = Prompt | Group | Scored | Batch | Feedback | Policy | RunState
M = TypeVar("M", bound=Message)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Prompt, Group, Scored, Batch, Feedback, Policy, RunState)
}


class Arrays(NamedTuple):
    """The arrays of one group: prompt_ids i32[P], token_ids i32[sum T_i], logprobs f32[sum T_i]."""

    prompt_ids: Int32s
    token_ids: Int32s
    logprobs: Float32s


def encode(message: Message, *arrays: Arrays) -> Frames:
    """Header and raw frames of a message; `Batch` takes one `Arrays` per group, `Group` and `Scored` one."""
    frames = [_encoder.encode(message)]
    for group in arrays:
        frames += [
            np.ascontiguousarray(group.prompt_ids, dtype="<i4").tobytes(),
            np.ascontiguousarray(group.token_ids, dtype="<i4").tobytes(),
            np.ascontiguousarray(group.logprobs, dtype="<f4").tobytes(),
        ]
    return frames


def decode(kind: type[M], frames: Sequence[bytes]) -> M:
    """The message of a header-only item, or the header alone of one with arrays."""
    if not frames:
        raise WireError(f"{kind.__name__}: no frames")
    try:
        message: M = _decoders[kind].decode(frames[0])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"{kind.__name__}: {error}") from error
    return message


def decode_group(frames: Sequence[bytes]) -> tuple[Group, Arrays]:
    """A group with its arrays; lengths and finiteness checked."""
    group = decode(Group, frames)
    return group, _arrays(group, frames[1:])


def decode_scored(frames: Sequence[bytes]) -> tuple[Scored, Arrays]:
    """A scored group with its arrays; one verdict and one term table per sample."""
    scored = decode(Scored, frames)
    _check_scored(scored)
    return scored, _arrays(scored.group, frames[1:])


def decode_batch(frames: Sequence[bytes]) -> tuple[Batch, list[Arrays]]:
    """A batch with the arrays of its groups, in the order of the groups."""
    batch = decode(Batch, frames)
    if len(frames) != 1 + 3 * len(batch.groups):
        raise WireError(f"batch {batch.step}: {len(frames) - 1} array frames for {len(batch.groups)} groups")
    for scored in batch.groups:
        _check_scored(scored)
    return batch, [_arrays(s.group, frames[1 + 3 * i : 4 + 3 * i]) for i, s in enumerate(batch.groups)]


def _check_scored(scored: Scored) -> None:
    """Raise `WireError` unless verdicts and terms fit the samples."""
    num_samples, where = len(scored.group.samples), f"group {scored.group.prompt.id}"
    if len(scored.verdicts) != num_samples or len(scored.terms) != num_samples:
        raise WireError(
            f"{where}: {len(scored.verdicts)} verdicts and {len(scored.terms)} terms, {num_samples} samples"
        )


def _arrays(group: Group, frames: Sequence[bytes]) -> Arrays:
    """Check the three frames of a group against its header."""
    where = f"group {group.prompt.id}"
    num_tokens = sum(sample.num_tokens for sample in group.samples)
    if len(frames) != 3:
        raise WireError(f"{where}: {len(frames)} array frames, 3 expected")
    if len(frames[0]) % 4 or len(frames[1]) != 4 * num_tokens or len(frames[2]) != 4 * num_tokens:
        raise WireError(f"{where}: array frames of {[len(f) for f in frames]} bytes do not fit {num_tokens} tokens")
    for sample in group.samples:
        _check_spans(where, sample.num_tokens, [(span.start, span.end) for span in sample.spans])
    arrays = Arrays(
        np.frombuffer(frames[0], dtype="<i4"), np.frombuffer(frames[1], "<i4"), np.frombuffer(frames[2], "<f4")
    )
    if not np.isfinite(arrays.logprobs).all():
        raise WireError(f"{where}: a log-probability is not finite")
    return arrays


def _check_spans(where: str, num_tokens: int, spans: list[tuple[int, int]]) -> None:
    """Version spans must cover the tokens of a sample without gap or overlap."""
    at = 0
    for start, end in spans:
        if start != at or end < start:
            raise WireError(f"{where}: version spans {spans} leave a gap")
        at = end
    if at != num_tokens:
        raise WireError(f"{where}: version spans {spans} do not cover {num_tokens} tokens")
