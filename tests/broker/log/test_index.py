"""The sparse indexes: look-ups against a plain list, Kafka's bytes, damage."""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import PENDING_LIMIT, IndexDamaged, OffsetIndex, TimeIndex

BASE = 1_000_000_000_000


def test_the_offset_index_has_kafkas_bytes(tmp_path: Path) -> None:
    index = OffsetIndex(FileSystem(), str(tmp_path / "x.index"), BASE)
    index.create_empty()
    index.append(BASE + 7, 100)
    index.append(BASE + 9, 4300)
    index.write_pending()
    assert (tmp_path / "x.index").read_bytes() == struct.pack(">iiii", 7, 100, 9, 4300)


def test_the_time_index_has_kafkas_bytes(tmp_path: Path) -> None:
    index = TimeIndex(FileSystem(), str(tmp_path / "x.timeindex"), BASE)
    index.create_empty()
    index.append(1_700_000_000_000, BASE + 3)
    index.write_pending()
    assert (tmp_path / "x.timeindex").read_bytes() == struct.pack(">qi", 1_700_000_000_000, 3)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60),
    repeat=st.sampled_from([1, 60]),
    written=st.booleans(),
    data=st.data(),
)
def test_look_ups_equal_a_plain_list(
    tmp_path: Path, kind: type, steps: list[tuple[int, int]], repeat: int, written: bool, data: st.DataObject
) -> None:
    path = tmp_path / "x.index"
    path.unlink(missing_ok=True)
    index = kind(FileSystem(), str(path), BASE)
    index.create_empty()
    keys, values = [], []
    key, value = BASE, (0 if kind is OffsetIndex else BASE)
    for key_step, value_step in steps * repeat:
        key, value = key + key_step, value + value_step
        keys.append(key)
        values.append(value)
        index.append(key, value)
    if written:
        index.write_pending()
        index = kind(FileSystem(), str(path), BASE)
    assert index.entries == len(keys)
    assert index.last() == ((keys[-1], values[-1]) if keys else None)
    for _ in range(10):
        for column, look_up in ((keys, index.floor_by_key), (values, index.floor_by_value)):
            low, high = (column[0], column[-1]) if column else (BASE, BASE)
            target = data.draw(st.integers(low - 10, high + 10))
            slot = bisect_right(column, target) - 1
            assert look_up(target) == ((keys[slot], values[slot]) if slot >= 0 else None)


def test_memory_stays_bounded_while_the_file_grows(tmp_path: Path) -> None:
    index = OffsetIndex(FileSystem(), str(tmp_path / "x.index"), 0)
    index.create_empty()
    for number in range(20 * PENDING_LIMIT + 5):
        index.append(number, number * 4096 % 2**31)
    assert index._state is not None
    assert len(index._state.keys) == 5
    assert (tmp_path / "x.index").stat().st_size == 20 * PENDING_LIMIT * 8


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(IndexDamaged, match="missing"):
        OffsetIndex(FileSystem(), str(tmp_path / "x.index"), 0).floor_by_key(5)


def test_a_file_with_a_broken_entry_is_damage(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(bytes(13))
    with pytest.raises(IndexDamaged, match="multiple"):
        OffsetIndex(FileSystem(), str(tmp_path / "x.index"), 0).floor_by_key(5)


def test_a_file_that_shrinks_under_the_reader_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(bytes(8 * 4000))
    index = OffsetIndex(FileSystem(), str(path), 0)
    assert index.entries == 4000
    path.write_bytes(b"")
    with pytest.raises(IndexDamaged, match="shorter"):
        index.floor_by_key(5)
