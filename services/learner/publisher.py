"""Policy versions into the weight store: a full snapshot at first and every K versions, deltas between.

    stage:  every rank  changes(its part)  ->  rank 0: + offset  ->  image in memory
    write:  rank 0      image  ->  digests, blocks  ->  store                         while the next step is trained

Rank 0 keeps an image of the last version, in the CPU's memory: deltas are applied to it as a rollout will, snapshots
are written from it, and its digests are what the manifest says. A version that is in the store already (its learner
died before the checkpoint) is kept, and what follows it is a snapshot.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from prometheus_client import Counter, Gauge, Histogram
from torch import Tensor

from common import delta, layout, weights
from common.image import Image
from common.weights import Manifest
from services.learner import publishing
from services.learner.changes import bits, changes
from services.learner.model import Policy
from services.learner.publishing import Published
from services.learner.ranks import World

Write = Callable[[], Manifest]

KEEP, FULL, DELTA = b"\x01", b"\x02", b"\x03"
"""What rank 0 tells the others to do."""
WORTH = 0.5
"""A delta above this share of the snapshot is not worth it: the snapshot is written."""

BYTES = Counter("dapo_publish_bytes_total", "Bytes of published versions.", ["kind"])
CHANGED = Gauge("dapo_publish_changed_share", "Share of the published values that the last delta changed.")
SECONDS = Histogram("dapo_publish_seconds", "Seconds of publishing a version, by phase.", ["phase"])


class Publisher:
    """See the module. With several ranks each has one, and all call `stage` together.

    What `stage` returns is to be called before the next `stage`.
    """

    def __init__(self, *, policy: Policy, world: World, store: Path, dtype: torch.dtype, snapshot_every: int) -> None:
        """`snapshot_every` 1 means no deltas, and none either for a dtype in which every value changes."""
        self._policy = policy
        self._world = world
        self._store = store
        self._dtype = dtype
        self._period = snapshot_every if dtype.itemsize == delta.UNIT else 1
        self._image: Image | None = None
        self._shadows: list[Tensor] = []
        self._last = -1
        """The version of image and shadows."""
        self._since_snapshot = 0

    def publish(self, version: int) -> Manifest | None:
        """Stage and write a version; returns its manifest on rank 0."""
        write = self.stage(version)
        return write() if write else None

    def stage(self, version: int) -> Write | None:
        """Take from the weights what has to be taken before they change; on rank 0 what writes the version."""
        tensors = publishing.published(self._policy, self._dtype)
        folder = weights.version_folder(self._store, version)
        order = self._world.from_lead(self._order(folder) if self._world.leads else b"")
        if order == DELTA:
            return self._delta(version, tensors)
        self._last = -1
        if order == FULL:
            return self._full(version, tensors)
        return partial(weights.read_manifest, folder) if self._world.leads else None

    def _order(self, folder: Path) -> bytes:
        if folder.exists():
            return KEEP
        return DELTA if self._last >= 0 and self._since_snapshot + 1 < self._period else FULL

    def _full(self, version: int, tensors: list[Published]) -> Write | None:
        if self._period == 1:
            return self._stream(version, tensors)
        if not self._world.leads:
            publishing.attend(tensors)
        else:
            self._image = self._image or _image(tensors, self._dtype)
            for tensor, place in zip(tensors, self._image.places.places, strict=True):
                self._image.tensors[place.begin : place.end] = publishing.as_bytes(tensor.make())
        self._shadows = self._take_shadows(tensors)
        self._last, self._since_snapshot = version, 0
        return partial(self._write_snapshot, version) if self._world.leads else None

    def _stream(self, version: int, tensors: list[Published]) -> Write | None:
        """Without deltas nothing is kept: one tensor after the other goes into the file, at once."""
        if not self._world.leads:
            publishing.attend(tensors)
            return None
        with _timed("write"):
            manifest = weights.publish(self._store, version, lambda path: publishing.write(path, tensors, self._dtype))
        BYTES.labels("full").inc((weights.version_folder(self._store, version) / weights.TENSORS).stat().st_size)
        return lambda: manifest

    def _write_snapshot(self, version: int) -> Manifest:
        assert self._image is not None
        memory = self._image.memory
        with _timed("write"):
            manifest = weights.publish(self._store, version, lambda path: _write(path, memory))
        BYTES.labels("full").inc(len(memory))
        return manifest

    def _take_shadows(self, tensors: list[Published]) -> list[Tensor]:
        """This rank's part of the version; on a CPU with one rank it is the image itself."""
        if self._world.size == 1 and self._policy.device.type == "cpu":
            assert self._image is not None
            return [
                torch.frombuffer(self._image.tensors[place.begin : place.end], dtype=torch.int16)
                for place in self._image.places.places
            ]
        return [bits(tensor.part(), self._dtype).clone() for tensor in tensors]

    def _delta(self, version: int, tensors: list[Published]) -> Write | None:
        with _timed("compare"):
            found = self._gather(tensors)
        base, self._last = self._last, version
        self._since_snapshot += 1
        if found is None:
            return None
        assert self._image is not None
        positions, values = found
        self._image.units[positions] = values
        CHANGED.set(len(positions) / max(1, len(self._image.units)))
        return partial(self._write_delta, version, base, positions, values)

    def _write_delta(self, version: int, base: int, positions: delta.Positions, values: delta.Units) -> Manifest:
        assert self._image is not None
        with _timed("encode"):
            coded = list(delta.encode(positions, values))
        blocks = [block for block, _ in coded]
        if delta.num_bytes(blocks) > WORTH * len(self._image.memory):
            self._since_snapshot = 0
            return self._write_snapshot(version)
        with _timed("digest"):
            digests = weights.digests(self._image.places, self._image.tensors)
        manifest = weights.as_manifest(version, self._image.places, digests, base=base, blocks=blocks)
        with _timed("write"):
            weights.publish_delta(self._store, manifest, [data for _, data in coded])
        BYTES.labels("delta").inc(delta.num_bytes(blocks))
        return manifest

    def _gather(self, tensors: list[Published]) -> tuple[delta.Positions, delta.Units] | None:
        """Rank 0: all changes, in units of the image. A rank's part of a tensor follows that of the rank before."""
        positions, values, start = [], [], 0
        for tensor, shadow in zip(tensors, self._shadows, strict=True):
            where, what = changes(tensor.part(), shadow, self._dtype)
            lengths = self._world.to_lead(len(shadow).to_bytes(8, "little"))
            for length, at, to in zip(
                lengths, self._world.to_lead(where.tobytes()), self._world.to_lead(what.tobytes()), strict=True
            ):
                positions.append(np.frombuffer(at, np.int64) + start)
                values.append(np.frombuffer(to, np.uint16))
                start += int.from_bytes(length, "little")
        if not self._world.leads:
            return None
        return np.concatenate(positions), np.concatenate(values)


def _image(tensors: list[Published], dtype: torch.dtype) -> Image:
    places = layout.build([(tensor.name, publishing.DTYPES[dtype], tensor.shape) for tensor in tensors])
    return Image(places, lambda size: memoryview(bytearray(size)))


def _write(path: Path, memory: memoryview) -> None:
    path.write_bytes(memory)


@contextmanager
def _timed(phase: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    SECONDS.labels(phase).observe(time.monotonic() - start)
