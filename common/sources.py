"""Versions from a folder that this process can read."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from common import layout, weights
from common.errors import WireError
from common.image import forward
from common.weights import DELTA, TENSORS, Manifest, version_folder


class Folder:
    """A weight store on this machine, or on a file system that it shares; files are mapped, not read."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def manifest(self, version: int) -> Manifest:
        """Of a version; raises `WireError`, or `OSError` if it was retired."""
        manifest = weights.read_manifest(version_folder(self._store, version))
        if manifest.version != version:
            raise WireError(f"version {version}: its manifest is that of version {manifest.version}")
        return manifest

    def data(self, manifest: Manifest) -> Iterator[memoryview]:
        """All of it, at once; raises `WireError` for a full version whose file is not what the manifest says."""
        path = version_folder(self._store, manifest.version) / (TENSORS if manifest.base is None else DELTA)
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if manifest.base is not None:
            yield mapped
            return
        found = layout.read(mapped)
        if [tuple(p[:3]) for p in found.places] != [(e.name, e.dtype, e.shape) for e in manifest.tensors]:
            raise WireError(f"version {manifest.version}: the file does not have the tensors of its manifest")
        yield mapped[len(found.header) :]


def write_whole(store: Path, version: int, path: Path) -> Manifest:
    """Write a version, full or delta, as a safetensors file; raises `WireError` or `OSError`. Returns its manifest."""
    image = forward(Folder(store), version, image=None, have=None, allocate=lambda size: memoryview(bytearray(size)))
    path.write_bytes(image.memory)
    return weights.as_manifest(version, image.places, weights.digests(image.places, image.tensors))
