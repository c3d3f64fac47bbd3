"""Lossless sparse deltas: where the weights changed, and what is there now.

    positions, values -> blocks of 2^24 units -> gaps and values as byte planes -> each plane zstd or as it is

A unit is two bytes, one bf16 weight. The positions in a block are coded as the gaps between them, so that a changed
share of 0.4 % needs little more than a byte a position; planes put the bytes that hardly vary (high bytes of gaps,
exponents) side by side. Values overwrite: applying a delta twice, or again after a death in the middle, gives the same
bytes. Nothing is rounded.

Measured by benchmarks/weights.py; docs/weight-deltas.md compares with XOR and with fixed-width positions.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
import pyarrow as pa
from msgspec import Meta, Struct
from numpy.typing import NDArray

from common.errors import WireError

UNIT = 2
"""Bytes."""
BLOCK = 1 << 24
"""Units that one block covers: 32 MiB of weights, so that coding and applying need little memory beside them."""
LEVEL = 1
"""Of zstd: higher ones are slower and hardly smaller here."""
PAYS = 0.95
"""A plane is compressed if that leaves less than this share of it."""
MAX_GAP_BYTES = 4

Positions = NDArray[np.int64]
Units = NDArray[np.uint16]
Count = Annotated[int, Meta(ge=0, le=BLOCK)]


class Block(Struct, frozen=True, kw_only=True):
    """What changed in units [start, start + BLOCK)."""

    start: Annotated[int, Meta(ge=0, le=2**48)]
    count: Count
    """Changed units; also the length of every plane before compression."""
    planes: Annotated[list[Count], Meta(min_length=3, max_length=MAX_GAP_BYTES + 2)]
    """Stored length of each plane: the bytes of the gaps, lowest first, then the low and the high bytes of the values.

    A plane that is shorter than `count` is compressed.
    """

    @property
    def num_bytes(self) -> int:
        """Stored."""
        return sum(self.planes)


def encode(positions: Positions, values: Units) -> Iterator[tuple[Block, bytes]]:
    """Blocks and their bytes, in order. `positions` are ascending units without repetition; one value each."""
    if not len(positions):
        return
    edges = np.arange(0, int(positions[-1]) + BLOCK + 1, BLOCK)
    cuts = np.searchsorted(positions, edges)
    for start, begin, end in zip(edges, cuts, cuts[1:], strict=False):
        if end > begin:
            yield _encode_block(int(start), positions[begin:end], values[begin:end])


def decode(block: Block, data: bytes | memoryview) -> tuple[Positions, Units]:
    """Positions and values of a block; raises `WireError` for bytes that are not a delta of this block."""
    if len(data) != block.num_bytes:
        raise WireError(f"delta block at {block.start} has {len(data)} bytes, {block.num_bytes} expected")
    planes, at = [], 0
    for size in block.planes:
        planes.append(_unpacked(data[at : at + size], block.count))
        at += size
    *gap_planes, low, high = planes
    gaps = np.zeros(block.count, np.int64)
    for place, plane in enumerate(gap_planes):
        gaps |= plane.astype(np.int64) << (8 * place)
    positions = np.cumsum(gaps + 1) - 1
    if block.count and positions[-1] >= BLOCK:
        raise WireError(f"delta block at {block.start} reaches beyond its end")
    values: Units = low.astype(np.uint16)
    values |= high.astype(np.uint16) << np.uint16(8)
    return positions + block.start, values


def apply(units: Units, block: Block, data: bytes | memoryview) -> None:
    """Write the new values into the weights; raises `WireError`, before anything is changed."""
    positions, values = decode(block, data)
    if len(positions) and positions[-1] >= len(units):
        raise WireError(f"delta block at {block.start} reaches beyond the {len(units)} units of the weights")
    units[positions] = values


def _encode_block(start: int, positions: Positions, values: Units) -> tuple[Block, bytes]:
    gaps = np.diff(positions, prepend=start - 1) - 1
    width = max(1, (int(gaps.max()).bit_length() + 7) // 8)
    planes = [_plane(gaps, place) for place in range(width)] + [_plane(values, place) for place in range(UNIT)]
    packed = [_packed(plane) for plane in planes]
    return Block(start=start, count=len(positions), planes=[len(plane) for plane in packed]), b"".join(packed)


def _plane(numbers: NDArray[np.int64] | Units, place: int) -> bytes:
    return ((numbers >> (8 * place)) & 0xFF).astype(np.uint8).tobytes()


def _packed(plane: bytes) -> bytes:
    small: bytes = pa.Codec("zstd", compression_level=LEVEL).compress(plane, asbytes=True)
    return small if len(small) < PAYS * len(plane) else plane


def _unpacked(data: bytes | memoryview, length: int) -> NDArray[np.uint8]:
    if len(data) == length:
        return np.frombuffer(data, np.uint8)
    try:
        plane = pa.Codec("zstd").decompress(data, decompressed_size=length)
    except (OSError, ValueError) as error:
        raise WireError(f"a plane of a delta does not decompress: {error}") from error
    if len(plane) != length:
        raise WireError(f"a plane of a delta has {len(plane)} bytes, {length} expected")
    return np.frombuffer(plane, np.uint8)


def num_bytes(blocks: Sequence[Block]) -> int:
    """Stored bytes of all blocks."""
    return sum(block.num_bytes for block in blocks)
