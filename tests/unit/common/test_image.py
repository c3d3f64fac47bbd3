"""The store of versions, and weights in memory that are brought forward from it."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from common import delta, layout, weights
from common.errors import WireError
from common.image import Image, compare, forward, named
from common.sources import Folder, write_whole
from common.weights import Manifest, version_folder

TENSORS = [("embed", "BF16", [7, 5]), ("layer.weight", "BF16", [40]), ("layer.bias", "F16", [3])]


def buffer(size: int) -> memoryview:
    return memoryview(bytearray(size))


class Trainer:
    """The learner's side of the store, on plain arrays."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.image = Image(layout.build(TENSORS), buffer)
        self.version = -1

    @property
    def units(self) -> delta.Units:
        return self.image.units

    def snapshot(self) -> Manifest:
        self.version += 1
        return weights.publish(self.store, self.version, lambda path: path.write_bytes(self.image.memory) and None)

    def step(self, where: list[int], what: list[int]) -> Manifest:
        """Change some weights and publish the delta."""
        positions = np.array(sorted(set(where)), np.int64)
        self.units[positions] = np.array(what[: len(positions)], np.uint16)
        coded = list(delta.encode(positions, self.units[positions]))
        digests = weights.digests(self.image.places, self.image.tensors)
        self.version += 1
        manifest = weights.as_manifest(
            self.version, self.image.places, digests, base=self.version - 1, blocks=[block for block, _ in coded]
        )
        weights.publish_delta(self.store, manifest, [data for _, data in coded])
        return manifest


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    trainer = Trainer(tmp_path)
    trainer.units[:] = np.arange(len(trainer.units))
    trainer.snapshot()
    return trainer


def follow(store: Path, version: int, image: Image | None = None, have: int | None = None) -> Image:
    return forward(Folder(store), version, image=image, have=have, allocate=buffer)


STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 77), max_size=20),
        st.lists(st.integers(0, 65535), min_size=20, max_size=20),
        st.sampled_from(["delta", "delta", "delta", "snapshot"]),
        st.sampled_from(["follow", "follow", "miss", "restart"]),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_any_chain_of_versions_with_misses_and_restarts_ends_bit_identical(steps: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder))
        trainer.snapshot()
        image: Image | None = None
        have: int | None = None
        for where, what, kind, fate in steps:
            if kind == "delta":
                trainer.step(where, what)
            else:
                trainer.snapshot()
            weights.retire(trainer.store, keep=2)
            if fate == "restart":
                image, have = None, None
            if fate != "miss":
                image = follow(trainer.store, trainer.version, image, have)
                have = trainer.version
                assert image.memory == trainer.image.memory
        final = follow(trainer.store, trainer.version, image, have)
        assert final.memory == trainer.image.memory


def test_a_thousand_versions_with_random_restarts_end_bit_identical(trainer: Trainer) -> None:
    rng = np.random.default_rng(1)
    image, have = follow(trainer.store, 0), 0
    for version in range(1, 1001):
        changed = rng.choice(len(trainer.units), 4, replace=False)
        trainer.step(changed.tolist(), rng.integers(0, 65536, 4).tolist()) if version % 20 else trainer.snapshot()
        weights.retire(trainer.store, keep=3)
        fate = rng.random()
        if fate < 0.1:
            image, have = follow(trainer.store, version), version
        elif fate < 0.7:
            image, have = follow(trainer.store, version, image, have), version
    assert follow(trainer.store, 1000, image, have).memory == trainer.image.memory


def test_only_the_deltas_that_are_missing_are_read(trainer: Trainer) -> None:
    image = follow(trainer.store, 0)
    for place in range(3):
        trainer.step([place], [9])
    (version_folder(trainer.store, 0) / weights.TENSORS).unlink()
    assert follow(trainer.store, 3, image, 0).memory == trainer.image.memory
    with pytest.raises(FileNotFoundError):
        follow(trainer.store, 3)


def test_a_version_keeps_what_it_is_built_on_and_nothing_else(trainer: Trainer) -> None:
    for _ in range(3):
        trainer.step([1], [5])
    trainer.snapshot()
    trainer.step([2], [6])
    assert weights.retire(trainer.store, keep=3) == []  # 3 is a delta on 2 on 1 on the snapshot 0
    trainer.step([3], [6])
    assert weights.retire(trainer.store, keep=3) == [0, 1, 2, 3]
    assert weights.stored(trainer.store) == [4, 5, 6]


def damaged(change: Callable[[Path], None]) -> Callable[[Trainer], None]:
    return lambda trainer: change(version_folder(trainer.store, trainer.version))


def flip(path: Path) -> None:
    data = bytearray((path / weights.DELTA).read_bytes())
    data[-1] ^= 1
    (path / weights.DELTA).write_bytes(data)


def truncate(path: Path) -> None:
    (path / weights.DELTA).write_bytes(b"")


def rename(path: Path) -> None:
    text = (path / weights.MANIFEST).read_text()
    (path / weights.MANIFEST).write_text(text.replace("layer.bias", "layer.bios"))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (flip, "tensor layer.weight does not have its digest"),
        (truncate, "end early"),
        (rename, "version 1 has other tensors than its base 0"),
    ],
)
def test_a_version_that_is_not_what_its_manifest_says_is_refused(
    trainer: Trainer, change: Callable[[Path], None], cause: str
) -> None:
    image = follow(trainer.store, 0)
    trainer.step([40], [5])  # unit 40 is in layer.weight, which begins at unit 35
    damaged(change)(trainer)
    with pytest.raises(WireError, match=cause):
        follow(trainer.store, 1, image, 0)


def test_a_tensor_that_is_missing_or_misshapen_is_named(trainer: Trainer) -> None:
    manifest = weights.read_manifest(version_folder(trainer.store, 0))
    expected = dict(named(manifest))
    compare(manifest, expected)
    with pytest.raises(WireError, match=r"tensor lm_head is missing, the model has \('BF16', \[2\]\)"):
        compare(manifest, expected | {"lm_head": ("BF16", [2])})
    with pytest.raises(WireError, match=r"tensor embed is \('BF16', \[7, 5\]\), the model has \('BF16', \[5, 7\]\)"):
        compare(manifest, expected | {"embed": ("BF16", [5, 7])})
    del expected["layer.bias"]
    with pytest.raises(WireError, match=r"tensor layer\.bias is .*, the model has no such tensor"):
        compare(manifest, expected)


def test_a_delta_is_a_whole_safetensors_file_to_who_wants_one(trainer: Trainer, tmp_path: Path) -> None:
    manifest = trainer.step([0, 77], [1, 2])
    assert write_whole(trainer.store, 1, tmp_path / "whole.safetensors").digest == manifest.digest
    loaded = load_file(tmp_path / "whole.safetensors")["layer.bias"]
    assert loaded.view(torch.uint16).tolist() == trainer.units[75:].tolist()


@pytest.mark.parametrize(
    "offsets", [[[0, 8], [8, 13]], [[0, 8], [9, 15]], [[0, 8], [4, 10]], [[0, 8], [8, 16]], [[8, 16], [0, 6]]]
)
def test_a_header_that_does_not_describe_the_bytes_behind_it_is_refused(offsets: list[list[int]]) -> None:
    header = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": offsets[0]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": offsets[1]},
    }
    text = msgspec.json.encode(header)
    with pytest.raises(WireError, match=r"tensor b|tensor a|describes"):
        layout.read(memoryview(len(text).to_bytes(8, "little") + text + b"\0" * 14))


@pytest.mark.parametrize("data", [b"", b"short", (1 << 40).to_bytes(8, "little") + b"{}", b"\2" + b"\0" * 7 + b"{]"])
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        layout.read(memoryview(data))
