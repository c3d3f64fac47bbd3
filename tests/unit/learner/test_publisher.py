from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common import weights
from common.image import Image, forward
from common.sources import Folder
from services.learner import lora
from services.learner.changes import _on_gpu, bits, changes, set_flags
from services.learner.config import LearnerConfig
from services.learner.model import Policy
from services.learner.publisher import Publisher
from services.learner.ranks import World
from tests.unit.learner.models import tiny_policy


def make(policy: Policy, store: Path, *, dtype: torch.dtype = torch.bfloat16, every: int = 100) -> Publisher:
    return Publisher(policy=policy, world=World(), store=store, dtype=dtype, snapshot_every=every)


def nudge(policy: Policy, scale: float = 1e-3, seed: int = 0) -> None:
    """Change some weights by about that much of themselves."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.named_parameters().values():
            parameter.mul_(1 + scale * torch.randn(parameter.shape, generator=generator))


def read(store: Path, version: int) -> Image:
    return forward(Folder(store), version, image=None, have=None, allocate=lambda size: memoryview(bytearray(size)))


def expected(policy: Policy, dtype: torch.dtype = torch.bfloat16) -> bytes:
    parameters = policy.named_parameters().values()
    return b"".join(p.detach().to(dtype).flatten().view(torch.uint8).numpy().tobytes() for p in parameters)


def test_the_first_version_is_full_and_the_next_are_deltas_that_end_at_the_same_bits(tmp_path: Path) -> None:
    policy = tiny_policy()
    publisher = make(policy, tmp_path)
    for version in range(5):
        manifest = publisher.publish(version)
        assert manifest is not None
        assert manifest.base == (version - 1 if version else None)
        assert read(tmp_path, version).tensors == expected(policy)
        nudge(policy, seed=version)
    assert "lm_head.weight" not in {entry.name for entry in manifest.tensors}  # tied: it is the embedding


def test_a_version_in_which_nothing_changed_is_an_empty_delta(tmp_path: Path) -> None:
    publisher = make(tiny_policy(), tmp_path)
    first, second = publisher.publish(0), publisher.publish(1)
    assert first is not None
    assert second is not None
    assert (second.base, second.blocks, second.digest) == (0, [], first.digest)
    assert read(tmp_path, 1).memory == read(tmp_path, 0).memory


def test_snapshots_come_every_so_many_versions(tmp_path: Path) -> None:
    publisher = make(tiny_policy(), tmp_path, every=3)
    assert [getattr(publisher.publish(version), "base", "") for version in range(7)] == [None, 0, 1, None, 3, 4, None]


def test_a_delta_that_is_not_worth_it_is_a_snapshot(tmp_path: Path) -> None:
    policy = tiny_policy()
    publisher = make(policy, tmp_path)
    publisher.publish(0)
    nudge(policy, scale=1.0)
    manifest = publisher.publish(1)
    assert manifest is not None
    assert manifest.base is None
    assert read(tmp_path, 1).tensors == expected(policy)
    nudge(policy)
    assert getattr(publisher.publish(2), "base", None) == 1
    assert read(tmp_path, 2).tensors == expected(policy)


def test_float32_is_always_full(tmp_path: Path) -> None:
    policy = tiny_policy()
    publisher = make(policy, tmp_path, dtype=torch.float32)
    assert [getattr(publisher.publish(version), "base", "") for version in range(3)] == [None, None, None]
    assert read(tmp_path, 2).tensors == expected(policy, torch.float32)


def test_after_a_version_that_was_there_already_comes_a_snapshot(tmp_path: Path) -> None:
    """The learner died before its checkpoint and trains again, perhaps not to the same bits on a GPU."""
    policy = tiny_policy()
    before = make(policy, tmp_path)
    kept = [before.publish(version) for version in range(3)]
    nudge(policy)
    again = make(policy, tmp_path)
    assert [again.publish(version) for version in (1, 2)] == kept[1:]
    assert getattr(again.publish(3), "base", "") is None
    assert read(tmp_path, 3).tensors == expected(policy)


def test_adapters_are_merged_into_deltas_as_into_snapshots(tmp_path: Path) -> None:
    policy = tiny_policy()
    lora.inject(policy.model, LearnerConfig(lora_rank=4))
    publisher, fresh = make(policy, tmp_path / "a"), tmp_path / "b"
    publisher.publish(0)
    for name, parameter in policy.named_parameters().items():
        if lora.is_adapter(name):
            torch.nn.init.normal_(parameter, std=0.02)
    delta, full = publisher.publish(1), make(policy, fresh).publish(1)
    assert delta is not None
    assert full is not None
    assert delta.digest == full.digest
    assert read(tmp_path / "a", 1).memory == read(fresh, 1).memory


@pytest.mark.parametrize("size", [1, 1000, (1 << 18) - 1, (1 << 18) + 3])
def test_changes_are_found_bit_by_bit_and_remembered(size: int) -> None:
    values = torch.randn(size)
    shadow = bits(values, torch.bfloat16).clone()
    assert len(changes(values, shadow, torch.bfloat16)[0]) == 0
    values[-1] = -values[-1] if values[-1] else -0.0
    values[0] = float("nan")
    where, what = changes(values, shadow, torch.bfloat16)
    assert where.tolist() == sorted({0, size - 1})
    assert torch.equal(shadow, bits(values, torch.bfloat16))
    assert len(what) == len(where)
    assert len(changes(values, shadow, torch.bfloat16)[0]) == 0


def test_minus_zero_is_a_change() -> None:
    values = torch.zeros(3)
    shadow = bits(values, torch.bfloat16).clone()
    values[1] = -0.0
    where, what = changes(values, shadow, torch.bfloat16)
    assert (where.tolist(), what.tolist()) == ([1], [0x8000])


def test_a_reader_finds_what_the_manifest_says_after_retirement(tmp_path: Path) -> None:
    policy = tiny_policy()
    publisher = make(policy, tmp_path, every=4)
    for version in range(10):
        publisher.publish(version)
        nudge(policy, seed=version)
        weights.retire(tmp_path, keep=1)
    assert weights.stored(tmp_path) == [8, 9]
    read(tmp_path, 9)


@given(st.lists(st.booleans(), max_size=200))
def test_set_flags_are_found_in_order(flags: list[bool]) -> None:
    assert set_flags(np.array(flags, bool)).tolist() == [place for place, flag in enumerate(flags) if flag]


def test_the_gpus_way_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.learner.changes.GPU_PIECE", 700)
    values = torch.randn(2000)
    shadow = bits(values, torch.bfloat16).clone()
    values[torch.randperm(2000)[:50]] *= 1.5
    other = shadow.clone()
    where, what = changes(values, shadow, torch.bfloat16)
    parts = list(_on_gpu(values, other, torch.bfloat16))
    assert np.concatenate([part for part, _ in parts]).tolist() == where.tolist()
    assert np.concatenate([part for _, part in parts]).tolist() == what.tolist()
    assert torch.equal(shadow, other)
