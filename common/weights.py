"""The weight store: one folder per policy version, complete or absent.

    weights/v000012/  model.safetensors   tensors under their Hugging Face names
                      manifest.json       version, digest, dtype and digest per tensor

A version is written beside its place, fsynced and renamed, so a reader sees all of it or nothing. This module knows
bytes and names only; the learner writes tensors, the rollout's engine reads them.
"""

import hashlib
import json
import mmap
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from common.errors import WireError
from common.folders import fsync, new_folder

TENSORS, MANIFEST = "model.safetensors", "manifest.json"
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class TensorEntry(Struct, frozen=True, kw_only=True):
    """One tensor of a version."""

    name: str
    dtype: str
    """As safetensors writes it: `F32`, `BF16`."""
    shape: list[int]
    digest: Sha256
    """Of the tensor's little-endian bytes."""


class Manifest(Struct, frozen=True, kw_only=True):
    """What a version holds."""

    version: int
    digest: Sha256
    """Of all tensor digests in order of name: equal digests mean equal weights, bit for bit."""
    tensors: list[TensorEntry]


def version_folder(store: Path, version: int) -> Path:
    """Where a version lives."""
    return store / f"v{version:06d}"


def publish(store: Path, version: int, write_tensors: Callable[[Path], None]) -> Manifest:
    """Write a version atomically and return its manifest; `write_tensors(path)` writes the safetensors file.

    A version that is already there is kept: its manifest is returned and nothing is written. The caller compares
    digests where a difference matters.
    """
    final = version_folder(store, version)
    if final.exists():
        return read_manifest(final)
    with new_folder(final) as partial:
        write_tensors(partial / TENSORS)
        manifest = describe(partial / TENSORS, version)
        (partial / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        for name in (TENSORS, MANIFEST):
            fsync(partial / name)
        partial.chmod(0o755)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a version; raises `WireError` if it does not decode, `FileNotFoundError` if it was retired."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise WireError(f"{folder / MANIFEST}: {error}") from error


def describe(path: Path, version: int) -> Manifest:
    """Digest a safetensors file, tensor by tensor, without a framework."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        entries = []
        for name in sorted(header):
            begin, end = header[name]["data_offsets"]
            with memoryview(data) as view, view[start + begin : start + end] as part:
                digest = hashlib.sha256(part).hexdigest()
            entries.append(
                TensorEntry(name=name, dtype=header[name]["dtype"], shape=header[name]["shape"], digest=digest)
            )
    return Manifest(version=version, digest=combined_digest(entries), tensors=entries)


def combined_digest(entries: Iterable[TensorEntry]) -> str:
    """The digest of a version from those of its tensors."""
    lines = (f"{e.name} {e.dtype} {e.shape} {e.digest}\n" for e in sorted(entries, key=lambda e: e.name))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def retire(store: Path, *, keep: int) -> list[int]:
    """Remove all but the newest `keep` versions; returns those removed."""
    versions = sorted(int(path.name[1:]) for path in store.glob("v[0-9]*"))
    removed = versions[:-keep] if keep > 0 else versions
    for version in removed:
        shutil.rmtree(version_folder(store, version), ignore_errors=True)
    return removed
