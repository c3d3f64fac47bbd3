from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from common import weights
from common.errors import WireError


def publish(store: Path, version: int, value: float) -> weights.Manifest:
    tensors = {"b": torch.full((2, 3), value), "a": torch.arange(4).bfloat16()}
    return weights.publish(store, version, lambda path: save_file(tensors, path))


def test_a_version_round_trips_bit_for_bit_with_names_dtypes_and_shapes(tmp_path: Path) -> None:
    manifest = publish(tmp_path, 3, 0.1)
    folder = weights.version_folder(tmp_path, 3)
    assert weights.read_manifest(folder) == manifest
    assert sorted((t.name, t.dtype, t.shape) for t in manifest.tensors) == [("a", "BF16", [4]), ("b", "F32", [2, 3])]
    assert torch.equal(load_file(folder / weights.TENSORS)["b"], torch.full((2, 3), 0.1))


def test_equal_weights_have_equal_digests_and_one_bit_changes_them(tmp_path: Path) -> None:
    assert publish(tmp_path, 1, 0.1).digest == publish(tmp_path, 2, 0.1).digest
    assert publish(tmp_path, 1, 0.1).digest != publish(tmp_path, 3, 0.1 + 1e-8).digest


def test_a_published_version_is_never_overwritten(tmp_path: Path) -> None:
    first = publish(tmp_path, 1, 0.1)
    assert publish(tmp_path, 1, 0.2) == first


def test_a_writer_that_dies_leaves_no_version_and_does_not_stand_in_the_way(tmp_path: Path) -> None:
    def dies(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.publish(tmp_path, 1, dies)
    assert not weights.version_folder(tmp_path, 1).exists()
    publish(tmp_path, 1, 0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["v000001"]


def test_only_the_newest_versions_are_kept(tmp_path: Path) -> None:
    for version in range(5):
        publish(tmp_path, version, float(version))
    assert weights.retire(tmp_path, keep=2) == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v000003", "v000004"]


def test_a_damaged_manifest_is_an_error_of_the_wire(tmp_path: Path) -> None:
    publish(tmp_path, 1, 0.1)
    (weights.version_folder(tmp_path, 1) / weights.MANIFEST).write_text("{}")
    with pytest.raises(WireError):
        weights.read_manifest(weights.version_folder(tmp_path, 1))
