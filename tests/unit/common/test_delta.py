"""Any sequence of versions, whatever the rollout misses or forgets, ends at the learner's bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import delta
from common.delta import BLOCK, Block, apply, decode, encode
from common.errors import WireError

EDGES = [0, 1, 127, 128, 255, 256, 65535, 65536, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 3 * BLOCK + 5]
POSITIONS = st.sets(st.integers(0, 3 * BLOCK + 9) | st.sampled_from(EDGES), max_size=60).map(sorted)


def arrays(positions: list[int], values: list[int]) -> tuple[delta.Positions, delta.Units]:
    return np.array(positions, np.int64), np.array(values[: len(positions)], np.uint16)


@given(POSITIONS, st.lists(st.integers(0, 65535), min_size=60, max_size=60))
def test_what_is_encoded_is_decoded(positions: list[int], values: list[int]) -> None:
    where, what = arrays(positions, values)
    parts = [decode(block, data) for block, data in encode(where, what)]
    assert [x for part, _ in parts for x in part.tolist()] == where.tolist()
    assert [x for _, part in parts for x in part.tolist()] == what.tolist()


@given(st.data())
@settings(deadline=None)
def test_applying_twice_or_after_half_is_applying_once(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 300))
    old = np.array(data.draw(st.lists(st.integers(0, 65535), min_size=size, max_size=size)), np.uint16)
    new = old.copy()
    for at in data.draw(st.lists(st.integers(0, size - 1), max_size=size)):
        new[at] ^= data.draw(st.integers(1, 65535))
    where = np.flatnonzero(old != new).astype(np.int64)
    torn = old.copy()
    torn[where[: len(where) // 2]] = new[where[: len(where) // 2]]
    for block, part in encode(where, new[where]):
        apply(torn, block, part)
        apply(torn, block, part)
    assert torn.tobytes() == new.tobytes()


def test_four_changed_weights_in_a_thousand_cost_less_than_one_byte_in_a_hundred() -> None:
    rng = np.random.default_rng(0)
    where = np.flatnonzero(rng.random(1 << 22) < 0.004).astype(np.int64)
    what = rng.integers(0, 65536, len(where), dtype=np.uint16)  # values that no compressor can shorten
    stored = sum(len(data) for _, data in encode(where, what))
    # 8 bits for the low byte of a gap, about 2 for the high one, 16 for the value: 0.004 * 26 / 16 = 0.65 %
    assert stored / (2 << 22) == pytest.approx(0.0065, abs=0.0003)


@given(st.binary(max_size=64), st.integers(0, 40), st.lists(st.integers(0, 20), min_size=3, max_size=6))
def test_bytes_that_are_no_delta_are_refused_or_stay_inside(data: bytes, count: int, planes: list[int]) -> None:
    units = np.zeros(100, np.uint16)
    block = Block(start=0, count=count, planes=planes)
    try:
        apply(units, block, data)
    except WireError:
        assert not units.any()
    else:
        assert np.count_nonzero(units) <= count


def test_a_block_that_reaches_beyond_the_weights_changes_nothing() -> None:
    ((block, data),) = encode(np.array([3, 10], np.int64), np.array([1, 2], np.uint16))
    units = np.zeros(10, np.uint16)
    with pytest.raises(WireError, match="beyond the 10 units"):
        apply(units, block, data)
    assert not units.any()


def test_a_plane_that_decompresses_to_more_than_it_says_is_refused() -> None:
    zeros = np.zeros(5000, np.uint16)
    ((block, data),) = encode(np.arange(5000, dtype=np.int64), zeros)
    smaller = Block(start=0, count=4000, planes=block.planes)
    with pytest.raises(WireError):
        decode(smaller, data)
