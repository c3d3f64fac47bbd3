"""Where the tensors of a version lie: the header of a safetensors file, built, read and checked against the length.

    8 bytes little-endian length | JSON header, padded | tensor bytes, one after the other without gaps

A header that does not describe exactly the bytes behind it is refused. Source of the format: github.com/huggingface/
safetensors, "Format".
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from common.errors import WireError

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I8": 1, "U8": 1, "BOOL": 1}
"""Bytes per element by dtype, as safetensors writes it."""
PREFIX = 8
MAX_HEADER = 64 << 20

Size = Annotated[int, Meta(ge=0, le=2**48)]
Shape = Annotated[list[Size], Meta(max_length=8)]
TensorName = Annotated[str, Meta(min_length=1, max_length=512)]


class Place(NamedTuple):
    """One tensor: `[begin, end)` are bytes behind the header."""

    name: str
    dtype: str
    shape: list[int]
    begin: int
    end: int


class Layout(NamedTuple):
    """All tensors, in the order of their bytes."""

    header: bytes
    """The length and the JSON text, as the file begins."""
    places: list[Place]

    @property
    def num_bytes(self) -> int:
        """Of all tensors."""
        return self.places[-1].end if self.places else 0


class _Entry(Struct, frozen=True):
    dtype: Annotated[str, Meta(max_length=16)]
    shape: Shape
    data_offsets: tuple[Size, Size]


def build(tensors: Sequence[tuple[str, str, Sequence[int]]]) -> Layout:
    """The layout of (name, dtype, shape), in that order."""
    places, end = [], 0
    for name, dtype, shape in tensors:
        begin, end = end, end + math.prod(shape) * WIDTHS[dtype]
        places.append(Place(name, dtype, list(shape), begin, end))
    header = {p.name: {"dtype": p.dtype, "shape": p.shape, "data_offsets": [p.begin, p.end]} for p in places}
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return Layout(len(text).to_bytes(PREFIX, "little") + text, places)


def read(data: memoryview) -> Layout:
    """The layout of a whole safetensors file; raises `WireError`."""
    length = int.from_bytes(data[:PREFIX], "little")
    if len(data) < PREFIX or length > min(MAX_HEADER, len(data) - PREFIX):
        raise WireError(f"the tensor header claims {length} bytes, the file has {len(data)}")
    header = bytes(data[: PREFIX + length])
    return Layout(header, checked(_places(header[PREFIX:]), len(data) - len(header)))


def checked(places: list[Place], num_bytes: int) -> list[Place]:
    """The places if they follow each other, are as long as dtype and shape say, and fill `num_bytes`."""
    at = 0
    for place in places:
        size = math.prod(place.shape) * WIDTHS.get(place.dtype, 0)
        if place.begin != at or place.end - place.begin != size or place.dtype not in WIDTHS:
            raise WireError(f"tensor {place.name}: {place.dtype} {place.shape} is not at [{place.begin}, {place.end})")
        at = place.end
    if at != num_bytes:
        raise WireError(f"the tensor header describes {at} bytes, there are {num_bytes}")
    return places


def _places(text: bytes) -> list[Place]:
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(part, type=_Entry) for name, part in raw.items()}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"the tensor header does not decode: {error}") from error
    places = [Place(name, e.dtype, e.shape, *e.data_offsets) for name, e in entries.items()]
    return sorted(places, key=lambda place: (place.begin, place.end))
