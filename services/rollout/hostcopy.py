"""The policy on this machine, from which the engine's workers read it, brought from version to version.

    register `policy` -> where its weights can be reached -> compare tensors -> deltas or snapshot -> digests -> a file

Shared memory without a name (memfd): workers of the same user map it by its path under /proc, Docker's limit of
/dev/shm does not apply, and it is gone when this process is, however it ends. A snapshot in a folder that can be read
here is checked and handed on as it is, without a copy.

A version that is refused leaves the copy of no version, and the next one starts from a snapshot: the engine has its
own.
"""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

from common import weights
from common.errors import WireError
from common.image import Image, Source, Tensors, compare, forward, named
from common.messages import Policy
from common.sources import Folder
from services.rollout.engine import LoadRefusedError
from services.rollout.stream import Stream


class HostCopy:
    """One version at a time. Not thread-safe."""

    def __init__(self, remote: Callable[[], Stream] | None = None) -> None:
        """`remote` opens the weight server, for when the folder cannot be reached."""
        self._remote = remote
        self._stream: Stream | None = None
        self._image: Image | None = None
        self._have: int | None = None
        """The version in the image; None: it must not be built upon."""
        self._handle = -1
        self._expected: Tensors | None = None
        """Tensors of the first version: every later one must have the same."""

    def close(self) -> None:
        """Close the connection to the weight server, if there is one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def prepare(self, policy: Policy) -> Path:
        """A safetensors file of the version, checked, valid until the next call; raises `LoadRefusedError`."""
        try:
            return self._prepare(policy)
        except (OSError, WireError) as error:
            raise LoadRefusedError(f"version {policy.version} cannot be taken: {error}") from error

    def _prepare(self, policy: Policy) -> Path:
        folder = Path(policy.path)
        source = self._source(folder)
        manifest = source.manifest(policy.version)
        if policy.digest != manifest.digest:
            raise WireError("the manifest does not have the digest that was announced")
        compare(manifest, self._expected if self._expected is not None else named(manifest))
        if manifest.base is None and isinstance(source, Folder):
            path = folder / weights.TENSORS
            if weights.describe(path, policy.version).digest != manifest.digest:
                raise WireError(f"{path} does not have the digests of its manifest")
        else:
            path = self._forward(source, policy.version)
        self._expected = named(manifest)
        return path

    def _forward(self, source: Source, version: int) -> Path:
        have, self._have = self._have, None
        self._image = forward(source, version, image=self._image, have=have, allocate=self._allocate)
        self._have = version
        return Path(f"/proc/{os.getpid()}/fd/{self._handle}")

    def _source(self, folder: Path) -> Source:
        if (folder / weights.MANIFEST).exists():
            return Folder(folder.parent)
        if self._remote is None:
            raise WireError(f"{folder} cannot be read here: share the folder, or set [run] weights to a weight server")
        self._stream = self._stream or self._remote()
        return self._stream

    def _allocate(self, size: int) -> memoryview:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = os.memfd_create("dapo-weights")
        os.ftruncate(self._handle, size)
        return memoryview(mmap.mmap(self._handle, size))
