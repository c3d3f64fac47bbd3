"""Whatever bytes stand in the place of a message, decoding gives a message or a `WireError`, and nothing else."""

import contextlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from common import codec
from common.codec import Arrays
from common.errors import WireError
from common.messages import Batch, Group, Scored
from tests.contract import golden

DECODERS = st.sampled_from([codec.decode_group, codec.decode_scored, codec.decode_batch])
ARRAYS = Arrays(np.arange(3, dtype=np.int32), np.arange(4, dtype=np.int32), np.zeros(4, np.float32))
WHOLE = {
    kind: codec.encode(message, ARRAYS)  # type: ignore[arg-type]
    for kind, message in golden.messages().items()
    if isinstance(message, Group | Scored | Batch)
}


@given(DECODERS, st.lists(st.binary(max_size=40), max_size=5))
def test_random_frames(decode, frames) -> None:  # type: ignore[no-untyped-def]
    with contextlib.suppress(WireError):
        decode(frames)


@given(DECODERS, st.sampled_from(sorted(WHOLE)), st.data())
def test_messages_with_changed_bytes(decode, kind: str, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    frames = [bytearray(frame) for frame in WHOLE[kind]]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decoded = decode([bytes(frame) for frame in frames])
        arrays = decoded[1] if isinstance(decoded[1], list) else [decoded[1]]
        assert all(np.isfinite(part.logprobs).all() for part in arrays)
