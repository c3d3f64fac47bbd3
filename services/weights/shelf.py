"""The versions of a store, mapped: a range of bytes costs no copy and no read call."""

import mmap
import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from common import layout, weights
from common.errors import WireError

OPEN = 6
"""Versions kept mapped, so that a retired one can be read to its end."""


class Version(NamedTuple):
    """One version of the store."""

    manifest: bytes
    data: memoryview
    """The tensors of a full version, the blocks of a delta."""


class Shelf:
    """See the module."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._open: OrderedDict[int, Version] = OrderedDict()

    def get(self, version: int) -> Version:
        """A version; raises `OSError` if it is not there, `WireError` if it is damaged."""
        if version not in self._open:
            self._open[version] = self._read(version)
            if len(self._open) > OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(version)
        return self._open[version]

    def _read(self, version: int) -> Version:
        folder = weights.version_folder(self._store, version)
        manifest = (folder / weights.MANIFEST).read_bytes()
        if weights.decode_manifest(manifest, str(folder)).base is not None:
            return Version(manifest, _mapped(folder / weights.DELTA))
        whole = _mapped(folder / weights.TENSORS)
        return Version(manifest, whole[len(layout.read(whole).header) :])

    def piece(self, version: int, offset: int, length: int) -> memoryview:
        """Some bytes of a version; raises `WireError` beyond its end."""
        data = self.get(version).data
        if offset + length > len(data):
            raise WireError(f"version {version} has {len(data)} bytes, not {offset + length}")
        return data[offset : offset + length]


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
