"""The transaction index: its bytes are Kafka's, look-ups find what overlaps, damage is noticed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.txn_index import AbortedEntry, TransactionIndex

ENTRIES = [
    AbortedEntry(0, 0, 10, 11),
    AbortedEntry(1, 5, 15, 13),
    AbortedEntry(2, 18, 35, 25),
    AbortedEntry(3, 32, 50, 40),
]


def index_at(path: Path, base_offset: int = 0) -> TransactionIndex:
    return TransactionIndex(FileSystem(), str(path / f"{base_offset:020d}.txnindex"), base_offset)


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    made = index_at(tmp_path)
    for entry in ENTRIES:
        made.append(entry)
    return made


def test_no_file_is_made_before_there_is_an_entry(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    assert (index.entries, index.all_entries(), index.overlapping(0, 100)) == (0, [], ([], False))
    index.sync()
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_are_those_of_kafka(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(AbortedEntry(983493, 137, 299, 200))
    assert Path(index.path).read_bytes() == struct.pack(">hqqqq", 0, 983493, 137, 299, 200)


def test_another_object_reads_what_was_written_and_goes_on_behind_it(index: TransactionIndex, tmp_path: Path) -> None:
    again = index_at(tmp_path)
    assert again.all_entries() == ENTRIES
    again.append(AbortedEntry(4, 60, 70, 71))
    assert index_at(tmp_path).entries == 5


@pytest.mark.parametrize(
    ("first", "end", "found", "complete"),
    [  # the cases of Kafka's TransactionIndexTest
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
    ],
)
def test_what_overlaps_a_range_is_found(
    index: TransactionIndex, first: int, end: int, found: list[int], complete: bool
) -> None:
    assert index.overlapping(first, end) == ([ENTRIES[number] for number in found], complete)


def test_the_end_of_the_log_can_be_cut_off(index: TransactionIndex, tmp_path: Path) -> None:
    index.cut(51)
    assert index_at(tmp_path).all_entries() == ENTRIES
    index.cut(50)
    assert index_at(tmp_path).all_entries() == ENTRIES[:3]
    index.cut(0)
    assert (index.entries, index_at(tmp_path).all_entries()) == (0, [])
    index.append(ENTRIES[0])
    assert index_at(tmp_path).all_entries() == ENTRIES[:1]


DAMAGE = {
    "half an entry": lambda data: data[:-10],
    "another version": lambda data: b"\x00\x01" + data[2:],
    "offsets that cannot be": lambda data: data[:10] + struct.pack(">qq", 130, 120) + data[26:],
    "an entry of an earlier segment": lambda data: data[:10] + struct.pack(">qq", 0, 3) + data[26:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    index = index_at(tmp_path, base_offset=100)
    index.append(AbortedEntry(1, 90, 120, 121))
    path = Path(index.path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(IndexDamaged):
        index_at(tmp_path, 100).overlapping(0, 1000)


def test_a_file_that_disappeared_is_noticed(index: TransactionIndex) -> None:
    Path(index.path).unlink()
    with pytest.raises(IndexDamaged):
        index.overlapping(0, 100)


@given(
    gaps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), max_size=600),
    first=st.integers(0, 2000),
    length=st.integers(1, 300),
)
def test_a_look_up_equals_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int]], first: int, length: int
) -> None:
    index = index_at(tmp_path_factory.mktemp("txn"))
    entries: list[AbortedEntry] = []
    last = stable = 0
    for step, back in gaps:
        last += step
        stable = max(stable, last - 10)
        entries.append(AbortedEntry(1, max(0, last - back), last, stable))
        index.append(entries[-1])
    end = first + length
    done = next((n for n, entry in enumerate(entries) if entry.last_stable_offset >= end), len(entries)) + 1
    expected = [entry for entry in entries[:done] if entry.last_offset >= first and entry.first_offset < end]
    assert index.overlapping(first, end)[0] == expected
