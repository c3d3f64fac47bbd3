"""A version in memory, as the safetensors file that it is, brought forward by deltas and checked against its manifest.

    full snapshot -> tensor bytes      delta -> units[positions] = values      check -> every digest is the manifest's

The memory is given: a plain buffer in the learner, shared memory at the rollout, where the engine's workers map it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np

from common import delta, layout, weights
from common.delta import Units
from common.errors import WireError
from common.layout import Layout
from common.weights import Manifest

Tensors = Mapping[str, tuple[str, list[int]]]
"""Dtype and shape by name."""


class Source(Protocol):
    """Where versions come from: a folder, or a weight server."""

    def manifest(self, version: int) -> Manifest:
        """Of a version; raises `WireError`, or `OSError` if it cannot be read."""

    def data(self, manifest: Manifest) -> Iterable[memoryview]:
        """The bytes of all tensors of a full version, or of all blocks of a delta, in pieces of any length."""


class Image:
    """Weights in writable memory."""

    def __init__(self, places: Layout, allocate: Callable[[int], memoryview]) -> None:
        """`allocate(n)` gives memory for the whole file."""
        self.places = places
        self.memory = allocate(len(places.header) + places.num_bytes)
        self.memory[: len(places.header)] = places.header
        self.tensors = self.memory[len(places.header) :]
        self.units: Units = np.frombuffer(self.tensors[: len(self.tensors) // delta.UNIT * delta.UNIT], np.uint16)

    def fill(self, pieces: Iterable[memoryview]) -> None:
        """Take all tensor bytes; raises `WireError` if they are too many or too few."""
        at = 0
        for piece in pieces:
            if at + len(piece) > len(self.tensors):
                raise WireError(f"more than the {len(self.tensors)} bytes of the tensors came")
            self.tensors[at : at + len(piece)] = piece
            at += len(piece)
        if at != len(self.tensors):
            raise WireError(f"{at} bytes of the tensors came, {len(self.tensors)} expected")

    def apply(self, manifest: Manifest, pieces: Iterable[memoryview]) -> None:
        """Bring the weights forward by a delta; raises `WireError`, perhaps in the middle of it."""
        parts = _cut(pieces, [block.num_bytes for block in manifest.blocks])
        for block, part in zip(manifest.blocks, parts, strict=True):
            delta.apply(self.units, block, part)

    def check(self, manifest: Manifest) -> None:
        """Raise `WireError`, naming the tensor, unless these are the weights of the version, bit for bit."""
        for entry, found in zip(manifest.tensors, weights.digests(self.places, self.tensors), strict=True):
            if entry.digest != found:
                raise WireError(f"version {manifest.version}: tensor {entry.name} does not have its digest")
        if weights.combined_digest(manifest.tensors) != manifest.digest:
            raise WireError(f"version {manifest.version}: the digest is not that of its tensors")


def forward(
    source: Source, version: int, *, image: Image | None, have: int | None, allocate: Callable[[int], memoryview]
) -> Image:
    """An image of the version: `image`, which holds version `have`, brought forward, or a new one.

    Raises `WireError` or `OSError`; then `image` is of no version any more.
    """
    steps = weights.chain(source.manifest, version, have=have if image else None)
    for manifest in steps:
        if image is None or named(manifest) != _tensors(image):
            if manifest.base is not None:
                raise WireError(f"version {manifest.version} has other tensors than its base {manifest.base}")
            image = Image(_layout(manifest), allocate)
        if manifest.base is None:
            image.fill(source.data(manifest))
        else:
            image.apply(manifest, source.data(manifest))
    assert image is not None
    image.check(steps[-1])
    return image


def named(manifest: Manifest) -> Tensors:
    """The tensors of a version."""
    return {entry.name: (entry.dtype, entry.shape) for entry in manifest.tensors}


def data_bytes(manifest: Manifest) -> int:
    """How many bytes `Source.data` gives."""
    return _layout(manifest).num_bytes if manifest.base is None else delta.num_bytes(manifest.blocks)


def compare(manifest: Manifest, expected: Tensors) -> None:
    """Raise `WireError` for the first tensor that is missing, unknown, or has another dtype or shape."""
    found = named(manifest)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise WireError(
                f"version {manifest.version}: tensor {name} is {found.get(name, 'missing')}, "
                f"the model has {expected.get(name, 'no such tensor')}"
            )


def _layout(manifest: Manifest) -> Layout:
    for entry in manifest.tensors:
        if entry.dtype not in layout.WIDTHS:
            raise WireError(f"version {manifest.version}: tensor {entry.name} has the unknown dtype {entry.dtype}")
    return layout.build([(entry.name, entry.dtype, entry.shape) for entry in manifest.tensors])


def _tensors(image: Image) -> Tensors:
    return {place.name: (place.dtype, place.shape) for place in image.places.places}


def _cut(pieces: Iterable[memoryview], sizes: Iterable[int]) -> Iterator[bytes | memoryview]:
    """The same bytes in parts of these sizes; raises `WireError` if they end early."""
    rest, stream = memoryview(b""), iter(pieces)
    for size in sizes:
        gathered = [rest]
        while sum(map(len, gathered)) < size:
            piece = next(stream, None)
            if piece is None:
                raise WireError("the bytes of a delta end early")
            gathered.append(piece)
        whole = gathered[-1] if sum(map(len, gathered[:-1])) == 0 else memoryview(b"".join(gathered))
        rest = whole[size:]
        yield whole[:size]
