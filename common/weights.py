"""The weight store: one folder per policy version, complete or absent.

    weights/v000020/  model.safetensors   a full snapshot: tensors under their Hugging Face names
                      manifest.json       version, digest, dtype, shape and digest per tensor
    weights/v000021/  delta.bin           what changed since `base`, see delta.py
                      manifest.json       the same, and the base and the blocks of the delta

A version is written beside its place, fsynced and renamed, so a reader sees all of it or nothing. The manifest of a
delta describes the whole version, so what was brought forward is checked against it, whatever way it came. This module
knows bytes and names only; image.py holds weights in memory.
"""

import hashlib
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import xxhash
from msgspec import Meta, Struct

from common import layout
from common.delta import Block
from common.errors import WireError
from common.folders import fsync, new_folder
from common.layout import Layout, Shape, TensorName

TENSORS, DELTA, MANIFEST = "model.safetensors", "delta.bin", "manifest.json"
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
"""xxh3-128: finds damage and mistakes, not forgery. Keys keep forgers out."""
Version = Annotated[int, Meta(ge=0, le=2**40)]


class TensorEntry(Struct, frozen=True, kw_only=True):
    """One tensor of a version."""

    name: TensorName
    dtype: Annotated[str, Meta(max_length=16)]
    """As safetensors writes it: `F32`, `BF16`."""
    shape: Shape
    digest: Digest
    """Of the tensor's little-endian bytes."""


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a version holds."""

    version: Version
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """Of all tensor digests in order of name: equal digests mean equal weights, bit for bit."""
    tensors: Annotated[list[TensorEntry], Meta(max_length=1 << 20)]
    """In the order of their bytes."""
    base: Version | None = None
    """The version that the delta is to be applied to; None: a full snapshot."""
    blocks: Annotated[list[Block], Meta(max_length=1 << 20)] = []
    """Of the delta, in the order of their bytes."""


def version_folder(store: Path, version: int) -> Path:
    """Where a version lives."""
    return store / f"v{version:06d}"


def publish(store: Path, version: int, write_tensors: Callable[[Path], None]) -> Manifest:
    """Write a full version atomically and return its manifest; `write_tensors(path)` writes the safetensors file.

    A version that is already there is kept: its manifest is returned and nothing is written. The caller compares
    digests where a difference matters.
    """
    final = version_folder(store, version)
    if final.exists():
        return read_manifest(final)
    with new_folder(final) as partial:
        write_tensors(partial / TENSORS)
        manifest = describe(partial / TENSORS, version)
        _finish(partial, TENSORS, manifest)
    return manifest


def publish_delta(store: Path, manifest: Manifest, parts: Iterable[bytes]) -> None:
    """Write a version that is a delta; `parts` are the bytes of its blocks, in order."""
    with new_folder(version_folder(store, manifest.version)) as partial:
        with (partial / DELTA).open("wb") as file:
            file.writelines(parts)
        _finish(partial, DELTA, manifest)


def _finish(partial: Path, data: str, manifest: Manifest) -> None:
    (partial / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    for name in (data, MANIFEST):
        fsync(partial / name)
    partial.chmod(0o755)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a version; raises `WireError` if it does not decode, `FileNotFoundError` if it was retired."""
    return decode_manifest((folder / MANIFEST).read_bytes(), str(folder / MANIFEST))


def decode_manifest(data: bytes, where: str) -> Manifest:
    """A manifest from a file or a socket; raises `WireError`."""
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"{where}: {error}") from error


def describe(path: Path, version: int) -> Manifest:
    """Digest a safetensors file, tensor by tensor, without a framework; raises `WireError` for one that is torn."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < layout.PREFIX:
            raise WireError(f"{path} is no safetensors file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            found = layout.read(view)
            with view[len(found.header) :] as tensors:
                return as_manifest(version, found, digests(found, tensors))


def digests(places: Layout, tensors: memoryview) -> list[str]:
    """The digest of every tensor, in order."""
    found = []
    for place in places.places:
        with tensors[place.begin : place.end] as part:
            found.append(xxhash.xxh3_128_hexdigest(part))
    return found


def as_manifest(
    version: int, places: Layout, found: Sequence[str], *, base: int | None = None, blocks: Sequence[Block] = ()
) -> Manifest:
    """The manifest of a version with these digests."""
    entries = [
        TensorEntry(name=place.name, dtype=place.dtype, shape=place.shape, digest=digest)
        for place, digest in zip(places.places, found, strict=True)
    ]
    return Manifest(version=version, digest=combined_digest(entries), tensors=entries, base=base, blocks=list(blocks))


def combined_digest(entries: Iterable[TensorEntry]) -> str:
    """The digest of a version from those of its tensors."""
    lines = (f"{e.name} {e.dtype} {e.shape} {e.digest}\n" for e in sorted(entries, key=lambda e: e.name))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def chain(read: Callable[[int], Manifest], version: int, *, have: int | None) -> list[Manifest]:
    """The manifests to go through, in order, to get from version `have` to `version`.

    The first is a full snapshot, or a delta on `have`. `read` gives the manifest of a version.
    """
    needed = [read(version)]
    while needed[-1].base is not None and needed[-1].base != have:
        base = needed[-1].base
        if base >= needed[-1].version:
            raise WireError(f"version {needed[-1].version} names {base} as its base")
        needed.append(read(base))
    return needed[::-1]


def stored(store: Path) -> list[int]:
    """The versions that are there, oldest first."""
    return sorted(int(path.name[1:]) for path in store.glob("v[0-9]*"))


def retire(store: Path, *, keep: int) -> list[int]:
    """Remove all but the newest `keep` versions and those that these are built on; returns those removed."""
    versions = stored(store)
    needed = set(versions[-keep:] if keep > 0 else [])
    if needed:
        needed |= {m.version for m in chain(lambda v: read_manifest(version_folder(store, v)), min(needed), have=None)}
    removed = [version for version in versions if version not in needed]
    for version in removed:
        shutil.rmtree(version_folder(store, version), ignore_errors=True)
    return removed
